-- Changes notes, each from the version that somebody has read. A note is the length of its version, the version, the value.
--
-- Input:   KEYS     the notes, each one once
--          ARGV[5]  for each three: the version that it is made from, behind a = (empty: there was none) · how many
--                   milliseconds it stays (empty: for good) · what it becomes (empty: nothing)
-- Output:  the time, then for each two: 1 written · 0 and what is there, if anything
--#include clock

local reply = { now }
for nth, key in ipairs(KEYS) do
  local expected, ttlMs, note = ARGV[2 + 3 * nth], ARGV[3 + 3 * nth], ARGV[4 + 3 * nth]
  local current = redis.call('GET', key)
  local version = ''
  if current then version = '=' .. struct.unpack('>I2c0', current) end
  local isExpected = version == expected
  reply[2 * nth] = isExpected and 1 or 0
  reply[2 * nth + 1] = not isExpected and current
  if isExpected then
    -- What stays for no time at all is gone at once.
    if note == '' or ttlMs == '0' then redis.call('DEL', key)
    elseif ttlMs == '' then redis.call('SET', key, note)
    else redis.call('SET', key, note, 'PX', ttlMs) end
  end
end
return reply

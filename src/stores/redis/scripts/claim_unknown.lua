-- Hands out unknown outcomes that may be asked about now, and hides each for its back-off.
--
-- Input:   KEYS[1]  the tag of a bucket
--          ARGV[5]  limit · ARGV[6] the first back-off · ARGV[7] the longest · ARGV[8] how often it doubles at most
-- Output:  for each one: name, record
--#include record
--#include writes
--#include due

local baseMs, capMs, doublingsMax = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local reply = {}

eachDue(KEYS[1], '@unknown', tonumber(ARGV[5]), function(key, r, ...)
  r.at = now + math.min(capMs, baseMs * 2 ^ math.min(r.count, doublingsMax))
  r.count = r.count + 1
  put(key, r, ...)
  reply[#reply + 1] = nameOf(key)
  reply[#reply + 1] = encode(r)
end)

flush()
return reply

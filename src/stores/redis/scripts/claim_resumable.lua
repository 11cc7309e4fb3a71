-- Hands out requests that a worker may execute or finish now, and hides each for its back-off.
--
-- Input:   KEYS[1]  the tag of a bucket
--          ARGV[5]  limit · ARGV[6] attemptsMax · ARGV[7] the first back-off · ARGV[8] the longest · ARGV[9] how often it
--                   doubles at most · ARGV[10] by · ARGV[11] why it is given up
-- Output:  how many were given up, then for each one: name, record, request
--#include record
--#include writes
--#include due

local attemptsMax, baseMs, capMs, doublingsMax =
  tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local reply = { 0 }

eachDue(KEYS[1], '@resume', tonumber(ARGV[5]), function(key, r, ...)
  if r.state == PENDING and r.expiresAt <= now then
    -- It is the sweeper's: nobody may execute it any more.
    gather(drops, KEYS[1] .. '@resume', nameOf(key))
    return
  end
  local request = redis.call('GET', requestKeyOf(key))
  if not request then
    -- Lost with a failover or evicted: its client can still retry.
    gather(drops, KEYS[1] .. '@resume', nameOf(key))
    return
  end
  if r.state == FAILED and math.max(r.fence, r.count) >= attemptsMax then
    -- What can be resumed may be half done, so somebody has to find out; any other has done nothing.
    if r.onCrash == RESUME or r.progress ~= '' then suspend(r, ARGV[11], now)
    else r.tail, r.at = ARGV[11], 0 end
    r.owner = ''
    put(key, r, ...)
    wake(key, r)
    audit(key, r, 'failed_retryable', ARGV[10], ARGV[11])
    reply[1] = reply[1] + 1
    return
  end
  r.at = now + math.min(capMs, baseMs * 2 ^ math.min(r.fence + r.count, doublingsMax))
  r.count = r.count + 1
  put(key, r, ...)
  reply[#reply + 1] = nameOf(key)
  reply[#reply + 1] = encode(r)
  reply[#reply + 1] = request
end)

flush()
return reply

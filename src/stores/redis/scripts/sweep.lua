-- Ends executions whose owner is gone, answers accepted requests that nobody executed in time, and makes unknown what is
-- half done and past its retention.
--
-- Input:   KEYS[1]  the tag of a bucket
--          ARGV[5]  limit · ARGV[6] the answer to what nobody executed
--          ARGV[7]  by · ARGV[8] why: crashed · ARGV[9] unclaimed · ARGV[10] abandoned
-- Output:  how many became unknown, may be retried, were answered
--#include record
--#include writes
--#include due

local unknown, retryable, unclaimed = 0, 0, 0
local by = ARGV[7]

eachDue(KEYS[1], '@sweep', tonumber(ARGV[5]), function(key, r, ...)
  local from = STATE_NAMES[r.state]
  local reason
  if r.state == IN_PROGRESS then
    reason = ARGV[8]
    crash(r, reason, now, r.kept == 1)
    if r.state == UNKNOWN then unknown = unknown + 1 else retryable = retryable + 1 end
  elseif r.state == PENDING then
    reason = ARGV[9]
    unclaimed = unclaimed + 1
    if r.progress ~= '' then
      -- That nothing was done would be a lie.
      suspend(r, reason, now)
    else
      r.state, r.at, r.tail, r.count = COMPLETED, now, ARGV[6], 0
      r.expiresAt = now + (r.expiresAt - r.createdAt)
      dropRequest(key, r)
    end
  else
    reason = ARGV[10]
    unknown = unknown + 1
    suspend(r, reason, now)
  end
  r.owner = ''
  put(key, r, ...)
  wake(key, r)
  audit(key, r, from, by, reason)
end)

flush()
return { unknown, retryable, unclaimed }

-- Removes those of some records that are settled, and requests whose record is not there any more.
--
-- Input:   KEYS  the records, each one once
-- Output:  for each: 0 nothing was there · 1 removed · 2 not settled, and left as it is · 3 cannot be read, and left
--#include record
--#include writes

local isAnyRemembered = false

-- Fences do not go back, but whose they are is not kept: only a digest is.
local function rememberFence(key, fence)
  setUntil(fenceKeyOf(key), textOf(fence), now + MEMORY_MS)
  if not isAnyRemembered then setUntil(forgottenKeyOf(key), '1', now + MEMORY_MS) end
  isAnyRemembered = true
end

local function forget(key)
  local head = redis.call('GETRANGE', key, 0, HEAD_BYTES - 1)
  local request = requestKeyOf(key)
  if head == '' then
    -- Its record was evicted or lost, and nobody will ever ask for it.
    later('DEL', request)
    return redis.call('EXISTS', request)
  end
  if not readable(head) then return 3 end
  local _, state, _, at, _, _, _, watched, _, fence, _, _, _, _, _, _, progressBytes = struct.unpack(HEAD, head)
  -- As isSettled says, which looks at no more than this.
  if not isSettled({ state = state, at = at, progress = progressBytes == 0 and '' or 'some' }) then return 2 end
  later('DEL', key)
  later('DEL', request)
  if fence > 1 then rememberFence(key, fence) end
  wake(key, { watched = watched })
  return 1
end

local replies, removed = {}, 0
for nth = 1, RECORDS do
  replies[nth] = forget(KEYS[nth])
  if replies[nth] == 1 then removed = removed + 1 end
end
-- Whoever has kept answers is not told whose are gone, but that any of them may be.
if removed > 0 and not IS_CLUSTER then gather(news, tagOf(KEYS[1]), 'e') end
flush()
return replies

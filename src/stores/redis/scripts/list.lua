-- Looks at what a list shows, without touching: no body is read.
--
-- Input:   KEYS  the records
-- Output:  for each: nothing if it is not there, else its head · its route · the status or the reason that its tail begins
--          with; of one that cannot be read only the head
--#include record

local function shown(key)
  local head = redis.call('GETRANGE', key, 0, HEAD_BYTES - 1)
  if head == '' then return false end
  if #head < HEAD_BYTES or not readable(head) then return { head } end
  local _, state, _, _, _, _, _, _, _, _, _, _, _, fingerprintBytes, ownerBytes, routeBytes, progressBytes =
    struct.unpack(HEAD, head)
  local routeFrom = HEAD_BYTES + fingerprintBytes + ownerBytes
  local tailFrom = routeFrom + routeBytes + progressBytes
  local route, tail = '', ''
  if routeBytes > 0 then route = redis.call('GETRANGE', key, routeFrom, routeFrom + routeBytes - 1) end
  if state == COMPLETED then
    tail = redis.call('GETRANGE', key, tailFrom, tailFrom + 1)
  elseif state == FAILED or state == UNKNOWN then
    tail = redis.call('GETRANGE', key, tailFrom, -1)
  end
  return { head, route, tail }
end

local replies = {}
for nth, key in ipairs(KEYS) do replies[nth] = shown(key) end
return replies

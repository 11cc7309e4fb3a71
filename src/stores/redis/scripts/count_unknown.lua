-- Counts unknown outcomes of a bucket, as many at a time as keep nobody else waiting.
--
-- Input:   KEYS[1]  the tag of a bucket
--          ARGV[5]  how many of them were looked at before · ARGV[6] how many to look at
-- Output:  the time · how many were looked at · how many wait to be asked about · how many are an operator's · when the
--          oldest was first reserved (0: there is none)
--#include record
--#include clock

local tag, from = KEYS[1], tonumber(ARGV[5])
local names = redis.call('ZRANGE', tag .. '@unknown', from, from + ARGV[6] - 1)
local waiting, escalated, oldest = 0, 0, 0
for _, name in ipairs(names) do
  local head = redis.call('GETRANGE', tag .. name, 0, HEAD_BYTES - 1)
  -- The record says what it is: an index may be wrong.
  if #head == HEAD_BYTES and readable(head) then
    local _, state, _, _, createdAt, _, _, _, _, _, _, escalatedAt = struct.unpack(HEAD, head)
    if state == UNKNOWN then
      if escalatedAt == 0 then waiting = waiting + 1 else escalated = escalated + 1 end
      if oldest == 0 or createdAt < oldest then oldest = createdAt end
    end
  end
end
return { now, #names, waiting, escalated, oldest }

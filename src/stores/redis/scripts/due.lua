-- Acts on what is due in an index of a bucket. What is in the index, and not there any more, is taken out of it.
local function eachDue(tag, suffix, limit, act)
  local names = redis.call('ZRANGEBYSCORE', tag .. suffix, '-inf', now, 'LIMIT', 0, limit)
  if #names == 0 then return end
  local keys = {}
  for nth, name in ipairs(names) do keys[nth] = tag .. name end
  local values = redis.call('MGET', unpack(keys))
  for nth, key in ipairs(keys) do
    local value = values[nth]
    if not value then
      gather(drops, tag .. suffix, names[nth])
    elseif readable(value) then
      local r = decode(value)
      act(key, r, dueTimes(r))
    end
  end
end

-- Takes names of records that are gone out of a list of what expires in a minute. Their places stay, and the reaper finds
-- nothing there.
--
-- Input:   KEYS[1]  the tag of a bucket
--          ARGV[5]  the list, behind the tag · then for each two: its place · its name
-- Output:  nothing
local tag = KEYS[1]
local list = tag .. ARGV[5]
for nth = 6, #ARGV, 2 do
  local place, name = ARGV[nth], ARGV[nth + 1]
  -- The reaper may have shortened the list meanwhile, and a request may have come with the same key.
  local isSame = redis.call('LINDEX', list, place) == name
  if isSame and redis.call('EXISTS', tag .. name) == 0 then redis.call('LSET', list, place, '') end
end

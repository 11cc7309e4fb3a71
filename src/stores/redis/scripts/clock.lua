-- All times are the server's: milliseconds since 1970, the same throughout a script.
--
-- Input:   ARGV[1]  the time, for tests; empty: the server's
-- Output:  now · ahead · seconds and micros, as the server says them
local seconds, micros = unpack(redis.call('TIME'))
local serverNow = seconds * 1000 + math.floor(micros / 1000)
local now = tonumber(ARGV[1]) or serverNow
-- What has to be added to a time for the server to let a key go then.
local ahead = serverNow - now

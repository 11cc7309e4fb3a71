-- All times are the server's: milliseconds since 1970, the same throughout a script.
-- Input:   ARGV[1]  the time, for tests; empty: the server's
local seconds, micros = unpack(redis.call('TIME'))
local now = tonumber(ARGV[1]) or (seconds * 1000 + math.floor(micros / 1000))

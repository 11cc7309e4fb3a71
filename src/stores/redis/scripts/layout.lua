-- A record as one value: a head of fixed width, then five texts, whose lengths are in the head. record.ts reads the same.
--
--   version · state · expiresAt · at (the time that its state is about; 0: none) · createdAt
--   onCrash · after (why it was last executed) · watched · kept (its request is stored) · fence · reconcileAfterMs ·
--   escalatedAt · count · lengths of fingerprint, owner, route and progress; then these
--   the tail: a reason, or the response
--
-- Input:   none
-- Output:  HEAD, for struct, and how many bytes it and its beginnings have · VERSION · the states, by number
local HEAD = '>BBI6I6I6BBBBI4I6I6I4I2I2I2I4'
local HEAD_BYTES = 54
-- What comes before the second line, and before createdAt.
local TIMES_BYTES, STATE_BYTES = 20, 14
local VERSION = 1
local sub = string.sub

local PENDING, IN_PROGRESS, COMPLETED, FAILED, UNKNOWN, EXPIRED = 1, 2, 3, 4, 5, 6
-- Deleted, and only its fence is remembered.
local GONE = 7

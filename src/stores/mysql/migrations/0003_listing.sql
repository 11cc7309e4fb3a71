-- What finds the records that an operator asks for.
--
-- As in those before, it can be carried out again after an interruption.

DELIMITER //

DROP PROCEDURE IF EXISTS latchkey_migrate_listing //
CREATE PROCEDURE latchkey_migrate_listing ()
SQL SECURITY INVOKER
BEGIN
  -- 1061: the key is there already, and so are both, because the statement is done as a whole or not at all.
  DECLARE CONTINUE HANDLER FOR 1061 BEGIN END;

  -- The records of each state, the latest first; the primary key comes behind by itself. A list of all states is six short
  -- ranges of this, so that there is no second key by time alone, which every new record would have to be written to.
  -- By the first bytes of the key: a UUID has 36, and what begins alike is told apart by looking.
  ALTER TABLE latchkey_records
    ADD KEY latchkey_records_listed (state, created_at),
    ADD KEY latchkey_records_key (record_key(40));
END //
CALL latchkey_migrate_listing() //
DROP PROCEDURE latchkey_migrate_listing //

DELIMITER ;

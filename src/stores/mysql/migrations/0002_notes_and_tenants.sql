-- Notes that all processes share, and what finds all that is kept of one tenant.
--
-- As in the first one, each statement can be carried out again after an interruption.

CREATE TABLE IF NOT EXISTS latchkey_notes (
  name      VARBINARY(300)  NOT NULL,
  version   VARBINARY(1024) NOT NULL,
  -- When it counts as forgotten, whether it is still here or not; NULL: never.
  forget_at BIGINT,
  value     MEDIUMBLOB      NOT NULL,
  PRIMARY KEY (name),
  KEY latchkey_notes_forget (forget_at)
) ENGINE = InnoDB ROW_FORMAT = DYNAMIC;

DELIMITER //

-- There is no IF NOT EXISTS for columns and keys that all servers know. Each statement is done as a whole or not at
-- all, so the first thing of it that is there already (1060: a column, 1061: a key) says that all of it is.
DROP PROCEDURE IF EXISTS latchkey_migrate_tenants //
CREATE PROCEDURE latchkey_migrate_tenants ()
SQL SECURITY INVOKER
BEGIN
  DECLARE CONTINUE HANDLER FOR 1060, 1061 BEGIN END;

  -- The scope of the request that caused a message; NULL where it was enqueued before there was this column. The trace
  -- context is there where the phase had one.
  ALTER TABLE latchkey_outbox
    ADD COLUMN scope MEDIUMBLOB,
    ADD COLUMN traceparent VARBINARY(1024),
    ADD KEY latchkey_outbox_scope (scope(64));

  -- By the first bytes of the scope: enough to tell tenants apart, and little to write with every record.
  ALTER TABLE latchkey_records ADD KEY latchkey_records_scope (scope(64));
  ALTER TABLE latchkey_audit ADD KEY latchkey_audit_tenant (scope(64));
END //
CALL latchkey_migrate_tenants() //
DROP PROCEDURE latchkey_migrate_tenants //

DELIMITER ;

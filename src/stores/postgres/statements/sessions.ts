import { channel, lockClass } from "./sql.ts";

/** Begins to own: a new number, and the lock that says that its session lives. */
export const ownSession = `
WITH numbered AS MATERIALIZED (SELECT nextval('latchkey_sessions')::int AS session)
SELECT session, pg_advisory_lock(${lockClass}, session) AS locked FROM numbered`;

/** Whether the session answers, and from which server process. */
export const pingSession = "SELECT pg_backend_pid() AS pid";

export const listen = `LISTEN ${channel}`;

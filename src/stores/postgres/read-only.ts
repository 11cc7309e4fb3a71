import type { Query } from "./database.ts";

/**
 * After a failover a connection may lead to a server that only reads, and a pool would keep it for as long as it works. So
 * after each refusal one connection is asked to end itself if that is so. The package `postgres` has no other way to
 * close one of its connections, and PgBouncer keeps its own whatever its clients do.
 */
export function leavingReadOnly(query: Query): () => void {
  let isLeaving = false;
  const left = () => {
    isLeaving = false;
  };
  return () => {
    // One at a time: while every server only reads, each would be one more connection in vain.
    if (isLeaving) return;
    isLeaving = true;
    query(endIfReadOnly).then(left, left);
  };
}

/**
 * On a standby it is true as well. The server then closes the connection when it has been idle for a moment, after the
 * answer: a connection that ends in the middle of a statement would keep `sql.end()` of the package `postgres` (3.4.9)
 * waiting for ever.
 */
const endIfReadOnly = `
SELECT set_config('idle_session_timeout', '1', false) WHERE current_setting('transaction_read_only')::bool`;

import type { Session } from "./database.ts";

/**
 * MariaDB, from 11.6 on by default, fails a transaction that locks a row which was written after the transaction had
 * first read anything. A phase that has read something, and meanwhile had its lease extended by a heartbeat, could never
 * be committed. So the statement that ends a phase goes without that: it is about nothing but the newest row. All that
 * the phase itself does stays under the setting that its pool has chosen.
 */
export class SnapshotIsolation {
  #isOn: boolean | undefined;

  /** The call with that setting switched off for it, where it is on. */
  async without(session: Session, call: string): Promise<string> {
    this.#isOn ??= await readSetting(session);
    return this.#isOn ? `SET STATEMENT innodb_snapshot_isolation = OFF FOR ${call}` : call;
  }
}

/** Asked for in two steps, because MySQL has neither the setting nor the table in which MariaDB keeps it. */
async function readSetting(session: Session): Promise<boolean> {
  const [server] = await session.rows("SELECT VERSION() LIKE '%MariaDB%' AS is_mariadb");
  if (server?.is_mariadb !== 1) return false;
  const [setting] = await session.rows(
    "SELECT COUNT(*) AS is_on FROM information_schema.session_variables " +
      "WHERE variable_name = 'innodb_snapshot_isolation' AND variable_value = 'ON'",
  );
  return setting?.is_on === 1;
}

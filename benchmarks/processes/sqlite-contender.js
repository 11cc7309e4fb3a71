// One of those who are measured on SQLite, in a process of its own, as it would be in earnest: where several share one, each
// pays for what the others have made of the compiled code.
import { randomUUID } from "node:crypto";
import { join } from "node:path";
import { setImmediate as nextTurn } from "node:timers/promises";
import { createLatchkey } from "latchkey";
import { sqliteStore } from "latchkey/sqlite";
import Database from "libsql";
import { withoutGroupCommit } from "../lib/contenders.js";
import { closedLoop, warmUp } from "../lib/load.js";
import { charge, chargeBytes, order } from "../lib/payload.js";
import { doAsAsked } from "./tasks.js";

/** @typedef {import("../lib/apart.js").SqliteKind} SqliteKind */

const [kind = "", folder = ""] = process.argv.slice(2);
const path = join(folder, `${kind}.db`);

/** @type {Record<SqliteKind, () => { operation(): Promise<unknown>, close(): Promise<void> }>} */
const makers = {
  plain: plainStatements,
  floor: leastThatGathers,
  latchkey: () => latchkeyOn({}),
  latchkeyPlain: () => latchkeyOn(withoutGroupCommit),
  latchkeyNormal: () => latchkeyOn({ synchronous: "normal" }),
};
const contender = makers[/** @type {SqliteKind} */ (kind)]();

/** @param {import("latchkey/sqlite").SqliteStoreOptions} options */
function latchkeyOn(options) {
  const database = new Database(path);
  const latchkey = createLatchkey({ store: sqliteStore(database, options), tenant: "single" });
  return {
    operation: () => latchkey.run({ tenant: "acme", key: randomUUID(), input: order }, () => charge),
    async close() {
      await latchkey.close();
      database.close();
    },
  };
}

/** The least that is durable before the handler runs and before the answer is sent. */
function plainStatements() {
  const { database, reserve, complete } = plainTable();
  return {
    async operation() {
      const key = randomUUID();
      reserve.run(key);
      await nextTurn(); // The handler: others have their turn.
      complete.run(chargeBytes, key);
    },
    async close() {
      database.close();
    },
  };
}

/** The same two statements, as many of them in one transaction as were asked for in one turn. No engine, no rules. */
function leastThatGathers() {
  const { database, reserve, complete } = plainTable();
  // As Latchkey has it: pages that many have changed are brought over once.
  database.exec("PRAGMA wal_autocheckpoint = 16384; PRAGMA cache_size = -16384");
  /** @type {(() => void)[]} */
  let statements = [];
  /** @type {Promise<void> | undefined} */
  let committed;
  const inOneTransaction = (/** @type {() => void} */ statement) => {
    statements.push(statement);
    committed ??= nextTurn().then(() => {
      const all = statements;
      statements = [];
      committed = undefined;
      database.exec("BEGIN IMMEDIATE");
      for (const run of all) run();
      database.exec("COMMIT");
    });
    return committed;
  };
  return {
    async operation() {
      const key = randomUUID();
      await inOneTransaction(() => reserve.run(key));
      await inOneTransaction(() => complete.run(chargeBytes, key));
    },
    async close() {
      database.close();
    },
  };
}

function plainTable() {
  const database = new Database(path);
  database.exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL");
  database.exec("CREATE TABLE plain_records (key TEXT PRIMARY KEY, state TEXT NOT NULL, response BLOB)");
  const reserve = database.prepare(
    "INSERT INTO plain_records (key, state) VALUES (?, 'in_progress') ON CONFLICT DO NOTHING",
  );
  const complete = database.prepare(
    "UPDATE plain_records SET state = 'completed', response = ? WHERE key = ? AND state = 'in_progress'",
  );
  return { database, reserve, complete };
}

doAsAsked(
  {
    warmUp: ({ callers }) => warmUp([contender], { callers: [callers] }),
    fresh: ({ callers }) => closedLoop({ callers, operation: contender.operation }),
  },
  contender.close,
);

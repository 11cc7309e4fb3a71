import { beforeAll, describe, expect, it } from "vitest";
import { PhaseError } from "../../src/core/errors.ts";
import { type MysqlConnection, mysqlStore } from "../../src/stores/mysql/store.ts";
import { insertRide, phase, usePhases } from "./mysql-phases.ts";
import { leaseOf, nothingLeftOpen, request } from "./mysql-support.ts";

const phases = usePhases();
const { files, inPhase, rides, progressOf } = phases;

beforeAll(async () => {
  await files.query(
    "CREATE PROCEDURE ends_it () BEGIN INSERT INTO rides VALUES ('by a procedure', 1); COMMIT; END",
  );
});

describe("a phase that would end its own transaction", () => {
  const methods: Readonly<Record<string, (tx: MysqlConnection) => unknown>> = {
    "tx.commit()": (tx) => tx.commit(),
    "tx.rollback()": (tx) => tx.rollback(),
    "tx.beginTransaction()": (tx) => tx.beginTransaction(),
    "tx.release()": (tx) => tx.release(),
    "tx.destroy()": (tx) => tx.destroy(),
    "tx.end()": (tx) => tx.end(),
  };
  const statements = [
    "COMMIT",
    " commit and chain",
    "ROLLBACK",
    "BEGIN",
    "START TRANSACTION",
    "SET autocommit = 1",
    "SET @@session.autocommit = 1",
    "CREATE TABLE not_made (a INT)",
    "DROP TABLE rides",
    "ALTER TABLE rides ADD COLUMN a INT",
    "TRUNCATE TABLE rides",
    "LOCK TABLES rides WRITE",
  ];
  const attempts: [string, (tx: MysqlConnection) => unknown][] = [
    ...Object.entries(methods),
    ...statements.map((sql): [string, (tx: MysqlConnection) => unknown] => [sql, (tx) => tx.query(sql)]),
    ["SELECT by options, then COMMIT", (tx) => tx.query({ sql: "COMMIT" })],
  ];

  it.each(attempts)("is refused before anything is sent: %s", async (name, end) => {
    const before = await rides();
    const failed = inPhase(async (tx) => {
      await insertRide(tx, `before ${name}`);
      await end(tx);
    });
    await expect(failed).rejects.toThrow(PhaseError);
    expect(await rides()).toEqual(before);
    await nothingLeftOpen(files);
  });

  it.each(["/* hidden */ COMMIT", "CALL ends_it()", "/* hidden */ CREATE TABLE made (a INT)"])(
    "is noticed at its end where nobody saw it coming: %s",
    async (sql) => {
      const lease = await leaseOf(phases.store, request());
      const failed = phases.store.transact?.(
        lease,
        (tx) => tx.query(sql),
        () => phase(),
      );
      await expect(failed).rejects.toThrow(PhaseError);
      expect(await progressOf(lease), "the phase is not written down").toBe(0);
      await nothingLeftOpen(files);
    },
  );

  it("may use savepoints and temporary tables", async () => {
    const { answer } = await inPhase(async (tx) => {
      await tx.query("SAVEPOINT own");
      await insertRide(tx, "given up");
      await tx.query("ROLLBACK TO SAVEPOINT own");
      await tx.query("CREATE TEMPORARY TABLE scratch (a INT)");
      await tx.query("DROP TEMPORARY TABLE scratch");
      await insertRide(tx, "kept");
    });
    expect(answer).toMatchObject({ kind: "committed" });
    expect(await rides()).toContain("kept");
    expect(await rides()).not.toContain("given up");
  });

  it("cannot use its connection after it is over", async () => {
    let kept: MysqlConnection | undefined;
    await inPhase((tx) => {
      kept = tx;
    });
    expect(() => kept?.query("INSERT INTO rides VALUES ('late', 1)")).toThrow(PhaseError);
    expect(await rides()).not.toContain("late");
  });
});

describe("what goes past the phase", () => {
  it("a method that was kept does not write into the phase of another request", async () => {
    const single = mysqlStore(files.pool({ connectionLimit: 1 }));
    const kept: ((sql: string) => Promise<unknown>)[] = [];
    await inPhase((tx) => {
      kept.push(tx.query, tx.execute);
    }, single);
    expect(kept).toHaveLength(2);
    const { answer } = await inPhase(async () => {
      for (const send of kept) {
        await expect(send("INSERT INTO rides VALUES ('by another', 1)")).rejects.toThrow(PhaseError);
      }
    }, single);
    expect(answer).toMatchObject({ kind: "committed" });
    expect(await rides()).not.toContain("by another");
  });

  it("a prepared statement is refused, in words that say what to use", async () => {
    const failed = inPhase(async (tx) => {
      await insertRide(tx, "before preparing");
      await tx.prepare("INSERT INTO rides VALUES (?, 1)");
    });
    await expect(failed).rejects.toThrow(/use tx\.execute/);
    await expect(failed).rejects.toThrow(PhaseError);
    expect(await rides()).not.toContain("before preparing");
    await nothingLeftOpen(files);
  });
});

describe("a phase that throws", () => {
  const unreadable = {
    get errno() {
      throw new Error("not to be looked at");
    },
  };

  it.each([
    ["nothing", undefined],
    ["null", null],
    ["what cannot be looked at", unreadable],
  ])("%s is rolled back, gives its connection back and throws just that", async (name, value) => {
    const single = mysqlStore(files.pool({ connectionLimit: 1 }));
    const failed = inPhase(async (tx) => {
      await insertRide(tx, `before ${name}`);
      throw value;
    }, single);
    const caught = await failed.then(
      () => expect.fail("it threw"),
      (error: unknown) => ({ error }),
    );
    expect(caught.error).toBe(value);
    await nothingLeftOpen(files);
    expect(await rides()).not.toContain(`before ${name}`);
    expect((await inPhase((tx) => insertRide(tx, `after ${name}`), single)).answer).toMatchObject({
      kind: "committed",
    });
  });
});

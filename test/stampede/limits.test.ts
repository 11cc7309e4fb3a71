import { type ChildProcess, fork } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, describe, expect, it } from "vitest";
import { openStore } from "../../src/stores/open-store.ts";
import { freshDatabase } from "../support/database.ts";
import type { Spray, Sprayed } from "./limits-process.ts";

const processes = 4;
const rate = { max: 100, perMs: 5_000 };
const windows = 3;
/** Many times what the limit lets in, and longer than is counted, so that somebody waits all the time. */
const spray: Spray = { forMs: (windows + 0.2) * rate.perMs, each: 4, everyMs: 40 };

const stores: Readonly<Record<string, () => Promise<{ url: string; drop(): Promise<unknown> }>>> = {
  async SQLite() {
    const directory = await mkdtemp(join(tmpdir(), "latchkey-limits-"));
    return { url: `sqlite:${join(directory, "limits.db")}`, drop: () => rm(directory, { recursive: true }) };
  },
  Postgres: freshDatabase,
};

describe.each(Object.entries(stores))(`${processes} processes on one %s`, (_name, create) => {
  const cleanUp: (() => Promise<unknown>)[] = [];
  afterEach(async () => {
    for (const clean of cleanUp.splice(0).reverse()) await clean();
  });

  // A machine that holds a process up for a second makes it decide alone, which is not what is measured here.
  const options = { timeout: 60_000, retry: 2 };
  it("let in, together, what one tenant may do, and everything that the others do", options, async () => {
    const database = await create();
    cleanUp.push(() => database.drop());
    const store = await openStore(database.url, { migrate: true });
    await store.close();
    const children = await Promise.all(Array.from({ length: processes }, () => start(database.url)));
    const heard = children.map((child) => once(child, "message") as Promise<[Sprayed]>);
    for (const child of children) child.send(spray);
    const reports = (await Promise.all(heard)).map(([report]) => report);

    const executedAt = reports.flatMap((report) => report.executedAt);
    const first = Math.min(...executedAt);
    const counted = executedAt.filter((at) => at < first + windows * rate.perMs).length;
    expect(counted / (windows * rate.max)).toBeGreaterThan(0.95);
    expect(counted / (windows * rate.max)).toBeLessThan(1.05);

    const requests = sum(reports.map(({ statuses }) => sum(Object.values(statuses))));
    expect(sum(reports.map(({ noteCalls }) => noteCalls))).toBeLessThan(requests / 5);
    for (const { statuses, calm } of reports) {
      expect(Object.keys(statuses)).toEqual(["201", "429"]);
      expect(Object.keys(calm)).toEqual(["201"]);
    }
  });

  async function start(url: string): Promise<ChildProcess> {
    const program = fileURLToPath(new URL("./limits-process.ts", import.meta.url));
    const child = fork(program, [url, JSON.stringify(rate)], { execArgv: ["--import", "tsx"] });
    cleanUp.push(async () => {
      const gone = once(child, "exit");
      child.kill();
      await gone;
    });
    await once(child, "message");
    return child;
  }
});

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, number) => total + number, 0);
}

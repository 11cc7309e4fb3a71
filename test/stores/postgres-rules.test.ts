import { randomUUID } from "node:crypto";
import { describe, expect, it } from "vitest";
import { insertion, useDatabase } from "./postgres-support.ts";

/** What the table itself refuses, whoever writes it: an operator by hand, or a version that does not know better. */

const database = useDatabase();

const underWay = { state: "'in_progress'", owner: "'o'", lease_until: "now()" };
const done = { state: "'completed'", completed_at: "now()", response_status: "201", response_head: "'{}'" };
const failed = { state: "'failed_retryable'", unusual: "'failed_retryable'", reason: "'no'" };
const unknown = { state: "'unknown'", unusual: "'unknown'", reason: "'no'", reconcile_after: "now()" };
const pending = { state: "'pending'", unusual: "'pending'", resume_after: "now()" };
const expired = { state: "'expired'", unusual: "'expired'" };

function insert(columns: Readonly<Record<string, string>>): Promise<unknown> {
  return database.query(insertion({ key: `'${randomUUID()}'`, ...columns }));
}

describe("the table", () => {
  it.each(Object.entries({ underWay, done, failed, unknown, pending, expired }))(
    "takes what is %s",
    async (_, row) => {
      await expect(insert(row)).resolves.toEqual([]);
    },
  );

  it.each<[string, Readonly<Record<string, string>>]>([
    ["under way without a lease", { ...underWay, lease_until: "NULL" }],
    ["a lease that is over", { ...done, lease_until: "now()" }],
    ["a lease of what is not under way", { ...underWay, state: "'completed'" }],
    ["under way and answered", { ...underWay, response_head: "'{}'" }],
    ["done without an answer", { ...done, response_head: "NULL" }],
    [
      "a failure that nobody would find, as the versions before 0008 write it",
      { ...failed, unusual: "NULL" },
    ],
    ["a failure under another name", { ...failed, unusual: "'unknown'" }],
    ["an unusual state that there is not", { ...failed, state: "'odd'", unusual: "'odd'" }],
    ["a failure without a reason", { ...failed, reason: "NULL" }],
    ["a failure with an answer", { ...failed, response_head: "'{}'" }],
    ["a failure that cannot crash", { ...failed, on_crash: "'hope'" }],
    ["an unknown outcome that nobody asks about", { ...unknown, reconcile_after: "NULL" }],
    ["an unknown outcome that a session owns", { ...unknown, owner_session: "1" }],
    ["a request that was accepted for no time", { ...pending, resume_after: "NULL" }],
    ["a key that is kept with its request", { ...expired, request_head: "'{}'" }],
  ])("refuses %s", async (_, row) => {
    await expect(insert(row)).rejects.toMatchObject({ code: "23514" });
  });
});

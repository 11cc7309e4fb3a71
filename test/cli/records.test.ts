import { spawn } from "node:child_process";
import { writeFileSync } from "node:fs";
import { userInfo } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, it } from "vitest";
import type { RecordDetailView, RecordPageView, RecordView } from "../../src/admin/views.ts";
import type { Store } from "../../src/core/store.ts";
import { openStore } from "../../src/stores/open-store.ts";
import { freshDatabase } from "../support/database.ts";
import { CommandLine, type Ended, endOf, type RunOptions } from "./command-line.ts";
import { complete, seedDeadLetters, seedRecords, suspend } from "./seed.ts";

let latchkey: CommandLine;
beforeAll(async () => {
  latchkey = await CommandLine.bundled();
});
afterAll(() => latchkey.remove());

let files = 0;
const stores = {
  SQLite: async () => {
    files += 1;
    return { url: `sqlite:${join(latchkey.folder, `records-${files}.db`)}`, drop: async () => {} };
  },
  Postgres: () => freshDatabase(),
};

// Each starts some processes, which take their time on a busy machine.
describe.each(Object.entries(stores))("%s", { timeout: 60_000 }, (_, make) => {
  let store: Store;
  let url: string;
  let drop: () => Promise<void>;
  beforeEach(async () => {
    ({ url, drop } = await make());
    store = await openStore(url, { migrate: true });
    return async () => {
      await store.close();
      await drop();
    };
  });

  const run = (args: readonly string[], options: RunOptions = {}) =>
    latchkey.run(args, { ...options, env: { LATCHKEY_STORE: url, ...options.env } });
  const answerOf = async <View>(ended: Promise<Ended>): Promise<View> => {
    const { code, stdout, stderr } = await ended;
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    return JSON.parse(stdout);
  };
  const recordOf = (key: string, scope = "acme") =>
    answerOf<RecordDetailView>(run(["inspect", key, "--scope", scope, "--json"]));

  it("list shows records in columns, by state, tenant, route, key and time, and pages of them", async () => {
    await seedRecords(store);
    await complete(store, "globex", "other");

    const all = await run(["list"]);
    expect(all).toMatchObject({ code: 0, stderr: "" });
    const [heading, ...lines] = all.stdout.trimEnd().split("\n");
    expect(heading).toMatch(/^STATE +KEY +SCOPE +ROUTE +STATUS +ATTEMPT +CREATED +NOTE$/);
    expect(lines.map((line) => line.split(/ +/).slice(0, 5))).toEqual([
      ["completed", "other", "globex", "charges.create", "201"],
      ["unknown", "doubtful", "acme", "charges.create", "-"],
      ["in_progress", "running", "acme", "charges.create", "-"],
      ["completed", "paid", "acme", "charges.create", "201"],
    ]);
    // The columns stand one below the other.
    const at = heading?.indexOf("SCOPE") ?? -1;
    for (const line of lines) expect(line.slice(at - 2, at)).toBe("  ");

    const keysOf = async (...flags: readonly string[]) =>
      (await answerOf<RecordPageView>(run(["list", "--json", ...flags]))).records.map(({ key }) => key);
    expect(await keysOf("--state", "unknown")).toEqual(["doubtful"]);
    expect(await keysOf("--tenant", "globex")).toEqual(["other"]);
    expect(await keysOf("--route", "charges.create", "--key", "paid")).toEqual(["paid"]);
    expect(await keysOf("--since", "1h", "--limit", "2")).toEqual(["other", "doubtful"]);

    const first = await answerOf<RecordPageView>(run(["list", "--json", "--limit", "3"]));
    expect(Object.keys(first)).toEqual(["records", "next", "order", "now"]);
    expect(await keysOf("--limit", "3", "--cursor", first.next ?? "")).toEqual(["paid"]);
    const { stderr } = await run(["list", "--limit", "3"]);
    expect(stderr).toMatch(/^more with --cursor \S+, or everything with --all\n$/);

    const nothing = await run(["list", "--until", "1h"]);
    expect(nothing).toEqual({ code: 3, stdout: "", stderr: "latchkey: no record is like that\n" });
  });

  it("list --all --json is one record on each line, across pages", async () => {
    const keys = Array.from({ length: 1_050 }, (_, index) => `key-${index}`);
    for (let at = 0; at < keys.length; at += 50) {
      await Promise.all(keys.slice(at, at + 50).map((key) => complete(store, "acme", key)));
    }
    const { code, stdout, stderr } = await run(["list", "--all", "--json"]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    const records = stdout
      .trimEnd()
      .split("\n")
      .map((line): RecordView => JSON.parse(line));
    expect(records.map(({ key }) => key).sort()).toEqual([...keys].sort());

    // Whoever has seen enough closes the pipe, and that is no error.
    const piped = spawn(
      "bash",
      ["--norc", "-c", 'set -o pipefail; "$0" "$1" list --all | head -n 1', process.execPath, latchkey.main],
      {
        env: { PATH: process.env.PATH, LATCHKEY_STORE: url },
        stdio: ["ignore", "pipe", "pipe"],
      },
    );
    const ended = await endOf(piped);
    expect(ended).toMatchObject({ code: 0, stderr: "" });
    expect(ended.stdout).toMatch(/^STATE .*\n$/);
  });

  it("nothing of what others have written is obeyed by a terminal, also not as JSON", async () => {
    const body = "\u009b2Jgone \u202ereversed \u001b[2J";
    await complete(store, "acme", "hostile", body);
    const text = await run(["inspect", "hostile"]);
    expect(text.stdout).toContain("gone");
    const json = await run(["inspect", "hostile", "--json"]);
    expect((JSON.parse(json.stdout) as RecordDetailView).response).toMatchObject({ body });
    const hidden = /[^\P{C}\n]/u; // Whatever is not seen, but for the ends of lines.
    for (const { stdout } of [text, json]) expect(stdout).not.toMatch(hidden);
    const unknown = await run(["inspect", "x\u009b2J", "--scope", "\u009b2J", "--json"]);
    expect(unknown.stderr).not.toMatch(hidden);
  });

  it("inspect shows state, timeline and answer of one record, found by its key alone", async () => {
    await seedRecords(store);
    const { code, stdout, stderr } = await run(["inspect", "paid"]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(/^state +completed$/m);
    expect(stdout).toMatch(/^created +\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ \(.+\)$/m);
    expect(stdout).toMatch(/^timeline\nAT .*\n.*absent -> in_progress/m);
    expect(stdout).toMatch(/^response\n201\ncontent-type: application\/json\n\n\{"id":"ch_1"\}$/m);

    expect(await recordOf("paid")).toMatchObject({
      key: "paid",
      scope: "acme",
      state: "completed",
      status: 201,
    });
    expect(await run(["inspect", "nobody"])).toEqual({
      code: 3,
      stdout: "",
      stderr: "latchkey: there is no record for the key nobody\n",
    });
  });

  it("a key that was used in two scopes is asked about, and found by tenant or scope", async () => {
    await complete(store, "acme", "same");
    await complete(store, "globex POST /rides", "same");
    const { code, stderr } = await run(["inspect", "same"]);
    expect(code).toBe(2);
    expect(stderr).toMatch(/more than one scope, say which with --scope: .*"globex POST \/rides"/);
    expect(await recordOf("same", "globex POST /rides")).toMatchObject({ tenant: "globex" });
    const byTenant = run(["inspect", "same", "--tenant", "globex", "--json"]);
    expect(await answerOf(byTenant)).toMatchObject({ scope: "globex POST /rides" });
    expect(await run(["inspect", "same", "--tenant", "a", "--scope", "b"])).toMatchObject({
      code: 2,
      stderr: expect.stringMatching(/--tenant or --scope, not both/),
    });
  });

  it("resolve --executed gives retries the answer byte for byte, and names who said so", async () => {
    await seedRecords(store);
    const body = Buffer.from([0x7b, 0x00, 0xff, 0x7d]);
    const file = join(latchkey.folder, "answer.bin");
    writeFileSync(file, body);
    const args = [
      "resolve",
      "doubtful",
      "--executed",
      "--status",
      "402",
      "--header",
      "X-Charge: ch_2",
      "--by",
      "ada",
    ];

    const asked = await run([...args, "--body", file]);
    expect(asked).toMatchObject({ code: 2, stdout: "", stderr: expect.stringMatching(/add --yes/) });
    expect((await recordOf("doubtful")).state).toBe("unknown");

    const answer = await answerOf(run([...args, "--body", file, "--yes", "--json"]));
    expect(answer).toMatchObject({
      kind: "resolved",
      key: "doubtful",
      attempt: 1,
      verdict: "completed",
      by: "ada",
    });
    const { record } = await store.read({ scope: "acme", key: "doubtful" });
    expect(record).toMatchObject({ state: "completed", response: { kind: "full", status: 402 } });
    if (record?.state !== "completed" || record.response.kind !== "full") return expect.unreachable();
    expect(Buffer.from(record.response.body)).toEqual(body);
    expect(record.response.headers).toContainEqual(["x-charge", "ch_2"]);
    const [entry] = await store.audit({ scope: "acme", key: "doubtful", limit: 1 });
    expect(entry).toMatchObject({ from: "unknown", to: "completed", by: "ada" });

    const again = await run([...args, "--yes"]);
    expect(again).toMatchObject({
      code: 4,
      stdout: "",
      stderr: expect.stringMatching(/the record is completed/),
    });
    const running = await run(["resolve", "running", "--not-executed", "--yes", "--json"]);
    expect({ code: running.code, ...JSON.parse(running.stderr) }).toMatchObject({
      code: 4,
      error: { code: "not-unknown" },
    });
  });

  it("resolve takes the body from stdin, and the other verdicts", async () => {
    await suspend(store, "acme", "piped");
    const flags = [
      "--executed",
      "--status",
      "200",
      "--header",
      "content-type: text/plain",
      "--body",
      "-",
      "--yes",
    ];
    expect(await run(["resolve", "piped", ...flags], { input: "done" })).toMatchObject({ code: 0 });
    expect(await recordOf("piped")).toMatchObject({
      response: { body: "done", headers: [["content-type", "text/plain"]] },
    });

    await suspend(store, "acme", "proven");
    const reason = "told by phone";
    expect(await run(["resolve", "proven", "--not-executed", "--reason", reason, "--yes"])).toMatchObject({
      code: 0,
    });
    expect(await recordOf("proven")).toMatchObject({ state: "failed_retryable", reason });

    await suspend(store, "acme", "no-phase");
    const misfit = await run(["resolve", "no-phase", "--effect-done", "--result", "{}", "--yes"]);
    expect(misfit).toMatchObject({ code: 4, stderr: expect.stringMatching(/no such external call/) });
    const missing = await run(["resolve", "nobody", "--not-executed", "--yes"]);
    expect(missing.code).toBe(3);
  });

  it("bust takes an answer away in the name of the user; what is under way is refused", async () => {
    await seedRecords(store);
    const reason = "a wrong price";
    const busted = await answerOf(run(["bust", "paid", "--reason", reason, "--yes", "--json"]));
    const by = userInfo().username;
    expect(busted).toEqual({ kind: "busted", scope: "acme", key: "paid", attempt: 1, by, reason });
    const [entry] = await store.audit({ scope: "acme", key: "paid", limit: 1 });
    expect(entry).toMatchObject({ from: "completed", to: "expired", by, reason });

    expect(await run(["bust", "paid", "--reason", reason, "--yes"])).toMatchObject({ code: 4 });
    const running = await run(["bust", "running", "--reason", reason, "--yes"]);
    expect(running).toMatchObject({
      code: 4,
      stderr: expect.stringMatching(/it is in_progress and stays so/),
    });
    expect((await run(["bust", "nobody", "--reason", reason, "--yes"])).code).toBe(3);
  });

  it("dead letters are listed, and requeued one by one or all", async () => {
    expect(await run(["dead-letters"])).toEqual({
      code: 3,
      stdout: "",
      stderr: "latchkey: there are no dead letters\n",
    });
    await seedDeadLetters(store, 12);
    const table = await run(["dead-letters", "list"]);
    expect(table.stdout.split("\n")[1]).toMatch(/receipt\.send .* nobody lives there$/);
    const page = await answerOf<{ deadLetters: { id: string }[]; next: string }>(
      run(["dead-letters", "--json", "--limit", "5"]),
    );
    expect(page.deadLetters).toHaveLength(5);
    const ids = page.deadLetters.slice(0, 2).map(({ id }) => id);

    expect(await run(["dead-letters", "requeue", ...ids])).toMatchObject({ code: 2 });
    expect(
      await answerOf(run(["dead-letters", "requeue", ...ids, "--yes", "--json", "--by", "ada"])),
    ).toEqual({
      requeued: 2,
      asked: 2,
      by: "ada",
    });
    expect((await run(["dead-letters", "requeue", ...ids, "--yes"])).code).toBe(3);
    expect(await run(["dead-letters", "requeue", "--all", "--yes"])).toEqual({
      code: 0,
      stdout: "requeued 10\n",
      stderr: "",
    });
    expect(await store.outbox?.counts()).toMatchObject({ waiting: 12, dead: 0 });
  });

  it("stats says what runs, what is unknown and what waits", async () => {
    await seedRecords(store);
    await seedDeadLetters(store, 1);
    const { code, stdout } = await run(["stats"]);
    expect(code).toBe(0);
    expect(stdout).toMatch(/^running +1$/m);
    expect(stdout).toMatch(/^unknown +1 being asked about/m);
    expect(stdout).toMatch(/^dead letters +1$/m);
    expect(await answerOf(run(["stats", "--json"]))).toMatchObject({ running: 1, unknown: { waiting: 1 } });
  });
});

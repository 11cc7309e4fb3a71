import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { CommandLine, endOf } from "./command-line.ts";
import { complete, seedDeadLetters, seedRecords, suspend } from "./seed.ts";

let latchkey: CommandLine;
let env: Record<string, string>;
let store: ReturnType<typeof sqliteStore>;
beforeAll(async () => {
  latchkey = await CommandLine.bundled();
  const path = join(latchkey.folder, "terminal.db");
  env = { LATCHKEY_STORE: `sqlite:${path}` };
  store = sqliteStore(path);
  await seedRecords(store);
  await complete(store, "acme", `a-key-that-is-long-${"x".repeat(200)}`);
  return async () => store.close();
});
afterAll(() => latchkey.remove());

const colour = "\u001b[";

describe("colours", () => {
  it("are for terminals alone, and not where NO_COLOR is set", async () => {
    const painted = await latchkey.inTerminal(["list"], { env });
    expect(painted.stdout).toContain(`${colour}31munknown`);
    const plain = await latchkey.inTerminal(["list"], { env: { ...env, NO_COLOR: "1" } });
    expect(plain.stdout).toMatch(/unknown/);
    expect(plain.stdout).not.toContain(colour);
    const piped = await latchkey.run(["list"], { env });
    expect(piped.stdout).not.toContain(colour);
    const json = await latchkey.inTerminal(["list", "--json"], { env });
    expect(JSON.parse(json.stdout).records).toHaveLength(4);
  });
});

describe("width", () => {
  it.each([
    [80, /^STATE +KEY +SCOPE +STATUS +CREATED *$/],
    [120, /^STATE +KEY +SCOPE +ROUTE +STATUS +ATTEMPT +CREATED +NOTE$/],
  ])("lines fit %s columns, and are cut nowhere else", async (columns, heading) => {
    const { stdout } = await latchkey.inTerminal(["list"], { env: { ...env, NO_COLOR: "1" }, columns });
    const lines = stdout.trimEnd().split("\r\n");
    expect(lines).toHaveLength(5);
    for (const line of lines) expect([...line].length).toBeLessThanOrEqual(columns);
    expect(lines[0]).toMatch(heading);
    expect(stdout).toMatch(/a-key-that-is-long-x{16,}…/);
    expect((await latchkey.run(["list"], { env })).stdout).toContain("x".repeat(200));
  });
});

describe("confirmation", { timeout: 60_000 }, () => {
  it("is asked for on a terminal, and anything but yes changes nothing", async () => {
    const args = ["bust", "paid", "--reason", "why not"];
    for (const answer of ["n", "", "perhaps"]) {
      const { code, stdout } = await latchkey.inTerminal(args, { env, answer });
      expect(stdout).toMatch(/paid in acme is completed with 201\. Take its answer away\?.*\[y\/N\]/);
      expect(stdout).toMatch(/not confirmed: nothing was changed/);
      expect(code).toBe(1);
    }
    const interrupted = await latchkey.inTerminal(args, { env, answer: "^C" });
    expect(interrupted.code).toBe(130);
    expect((await store.read({ scope: "acme", key: "paid" })).record?.state).toBe("completed");

    const { code, stdout } = await latchkey.inTerminal(args, { env, answer: "y" });
    expect(stdout).toMatch(/busted: the next request/);
    expect(code).toBe(0);
  });

  it("is asked for by resolve and requeue, too", async () => {
    await suspend(store, "acme", "asked");
    const resolved = await latchkey.inTerminal(["resolve", "asked", "--not-executed"], {
      env,
      answer: "yes",
    });
    expect(resolved).toMatchObject({ code: 0, stdout: expect.stringMatching(/the provider did not answer/) });
    await seedDeadLetters(store, 3);
    const kept = await latchkey.inTerminal(["dead-letters", "requeue", "--all"], { env, answer: "no" });
    expect(kept.stdout).toMatch(/Deliver 3 messages again\?/);
    expect((await store.outbox?.counts())?.dead).toBe(3);
  });
});

describe("progress", () => {
  it("is a bar on stderr while the answer goes to a file, and only there", async () => {
    const file = join(latchkey.folder, "records.ndjson");
    const seen = await latchkey.inTerminal(["list", "--all", "--json"], { env, stdoutTo: file });
    expect(seen.stdout).toMatch(/\d+ records, \d+\.\d s/);
    const lines = readFileSync(file, "utf8").trimEnd().split("\n");
    expect(lines.map((line) => JSON.parse(line).key)).toContain("running");

    const onTerminal = await latchkey.inTerminal(["list", "--all"], { env });
    expect(onTerminal.stdout).not.toMatch(/records, /);
    expect((await latchkey.run(["list", "--all"], { env })).stderr).toBe("");
  });

  it("of what can be counted has an end", async () => {
    await seedDeadLetters(store, 4);
    const { code, stdout } = await latchkey.inTerminal(["dead-letters", "requeue", "--all", "--yes"], {
      env,
    });
    expect(code).toBe(0);
    expect(stdout).toMatch(/\[#{24}\] \d+ of \d+ messages/);
    expect(stdout).toMatch(/requeued \d+/);
  });
});

it("what others have written cannot move the cursor", async () => {
  await complete(store, "acme", "evil\u001b[2J\u202egnp", "\u001b]0;owned\u0007\nsecond line");
  const { stdout } = await latchkey.inTerminal(["inspect", "evil\u001b[2J\u202egnp"], {
    env: { ...env, NO_COLOR: "1" },
  });
  expect(stdout).toMatch(/evil\ufffd\[2J\ufffdgnp/);
  expect(stdout).toMatch(/second line/);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: what must not be there.
  expect(stdout).not.toMatch(/[\u001b\u0007\u202e]/);
});

it("Ctrl-C ends with 130, and what is watched is one document on a line", async () => {
  const child = latchkey.start(["stats", "--watch", "--every", "10ms", "--json"], { env });
  const ended = endOf(child);
  if (child.stdout === null) return expect.unreachable();
  const lines = createInterface({ input: child.stdout });
  const looks: unknown[] = [];
  lines.on("line", (line) => {
    looks.push(JSON.parse(line));
    if (looks.length === 3) child.kill("SIGINT");
  });
  await once(lines, "close");
  expect(looks[2]).toMatchObject({ running: 1 });
  expect((await ended).code).toBe(130);
});

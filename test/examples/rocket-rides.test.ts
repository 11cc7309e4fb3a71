import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { freshDatabase } from "../support/database.ts";

const root = fileURLToPath(new URL("../../", import.meta.url));
const folders: string[] = [];
const databases: Awaited<ReturnType<typeof freshDatabase>>[] = [];
const running: ReturnType<typeof spawn>[] = [];

afterEach(async () => {
  for (const child of running.splice(0)) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    child.kill("SIGKILL");
    await once(child, "exit");
  }
});
afterAll(async () => {
  await Promise.all(databases.map((database) => database.drop()));
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

/** `npm start -w examples/rocket-rides`, but with its files in a folder of this test. */
function start(env: Record<string, string>) {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-rides-"));
  folders.push(folder);
  const child = spawn(
    process.execPath,
    ["--import", `file://${root}node_modules/tsx/dist/loader.mjs`, `${root}examples/rocket-rides/start.ts`],
    { cwd: folder, env: { ...process.env, TSX_TSCONFIG_PATH: `${root}tsconfig.json`, PORT: "0", ...env } },
  );
  running.push(child);
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk) => {
      output += chunk;
    });
  }
  return {
    child,
    output: () => output,
    async said(text: string): Promise<string> {
      while (!output.includes(text)) {
        if (child.exitCode !== null) throw new Error(`the example exited: ${output}`);
        await Promise.race([once(child.stdout, "data"), once(child, "exit")]);
      }
      return output;
    },
  };
}

interface Pasted {
  readonly status: number;
  readonly replayed: boolean;
  readonly body: Readonly<Record<string, unknown>>;
}

/** The lines that a person would paste, run by a shell as they are. */
async function paste(command: string | undefined): Promise<Pasted> {
  const { stdout } = await promisify(execFile)("sh", ["-c", `${command} -s`]);
  const [head = "", body = ""] = stdout.split("\r\n\r\n");
  return {
    status: Number(head.split(" ")[1]),
    replayed: /^idempotency-replayed: true$/im.test(head),
    body: JSON.parse(body),
  };
}

async function untilBooked(command: string | undefined): Promise<Pasted> {
  for (;;) {
    const pasted = await paste(command);
    if (pasted.status === 201) return pasted;
    await delay(200);
  }
}

const settings: Record<string, () => Promise<Record<string, string>>> = {
  "SQLite with a provider that deduplicates": async () => ({}),
  "SQLite with a provider that does not": async () => ({ DEDUPLICATES: "no" }),
  "Postgres with a provider that deduplicates": async () => {
    const database = await freshDatabase();
    databases.push(database);
    return { DATABASE_URL: database.url };
  },
};

const testTimeoutMs = 60_000; // Two processes are compiled and started, and outcomes are looked for every second.

describe("Rocket Rides", () => {
  it.each(Object.entries(settings))(
    "on %s, prints commands that show a ride, its retry and a lost answer",
    async (_, environment) => {
      const example = start(await environment());
      const greeting = await example.said("Two rides, two charges: curl");
      const commands = greeting.split("\n").filter((line) => line.startsWith("curl"));
      expect(commands).toHaveLength(5);

      const first = await paste(commands[0]);
      expect(first).toMatchObject({ status: 201, replayed: false });
      expect(await paste(commands[1])).toEqual({ ...first, replayed: true });

      expect(await paste(commands[2])).toMatchObject({ status: 200, body: { next: ["lose-response"] } });
      expect(await paste(commands[3])).toMatchObject({ status: 502 });
      const second = await untilBooked(commands[4]);

      const list = /Two rides, two charges: curl (\S+)/.exec(greeting)?.[1] ?? "";
      const charges = (await (await fetch(list)).json()) as { id: string; reference: string }[];
      expect(charges.map(({ id, reference }) => ({ charge: id, ride: reference }))).toEqual([
        first.body,
        second.body,
      ]);

      const service = /http:\/\/127\.0\.0\.1:\d+/.exec(greeting)?.[0];
      const ride = await (await fetch(`${service}/rides/${second.body.ride}`)).json();
      expect(ride).toMatchObject({ user: "demo", state: "paid", chargeId: second.body.charge });
      await example.said("receipt_sent done");

      example.child.kill("SIGTERM");
      expect((await once(example.child, "exit"))[0]).toBe(0);
    },
    testTimeoutMs,
  );

  it(
    "answers 402 for a declined card, and for every retry",
    async () => {
      const example = start({});
      const commands = (await example.said("Two rides, two charges: curl"))
        .split("\n")
        .filter((line) => line.startsWith("curl"));
      await paste(commands[2]?.replace("lose-response", "decline"));
      const declined = await paste(commands[3]);
      expect(declined).toMatchObject({ status: 402, replayed: false });
      expect(await paste(commands[4])).toEqual({ ...declined, replayed: true });
    },
    testTimeoutMs,
  );

  it("says what to do when its port is taken", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    const { port } = taken.address() as AddressInfo;
    try {
      const example = start({ PORT: String(port) });
      expect((await once(example.child, "exit"))[0]).toBe(1);
      expect(example.output()).toContain(`Port ${port} is taken. Choose another one: PORT=8788`);
    } finally {
      taken.close();
    }
  });
});

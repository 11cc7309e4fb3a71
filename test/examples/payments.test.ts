import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, afterEach, describe, expect, it } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "latchkey-demo-"));
const running: ReturnType<typeof spawn>[] = [];

afterAll(() => rmSync(folder, { recursive: true, force: true }));
afterEach(async () => {
  for (const child of running.splice(0)) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    child.kill("SIGKILL");
    await once(child, "exit");
  }
});

/** `npm start -w examples/payments`, but with its files in a folder of this test. */
function start(env: Record<string, string>) {
  const child = spawn(
    process.execPath,
    ["--import", `file://${root}node_modules/tsx/dist/loader.mjs`, `${root}examples/payments/server.ts`],
    {
      cwd: folder,
      env: { ...process.env, TSX_TSCONFIG_PATH: `${root}tsconfig.json`, ...env },
    },
  );
  running.push(child);
  let output = "";
  child.stdout.on("data", (chunk) => {
    output += chunk;
  });
  child.stderr.on("data", (chunk) => {
    output += chunk;
  });
  return {
    child,
    output: () => output,
    async greeting(): Promise<string> {
      while (!output.includes("in the ledger")) {
        if (child.exitCode !== null) throw new Error(`the demo exited: ${output}`);
        await Promise.race([once(child.stdout, "data"), once(child, "exit")]);
      }
      return output;
    },
  };
}

/** The lines that a person would paste, run by a shell as they are. */
async function paste(
  command: string,
): Promise<{ status: number; replayed: boolean; body: Record<string, unknown> }> {
  const { stdout } = await promisify(execFile)("sh", ["-c", `${command} -s`]);
  const [head = "", body = ""] = stdout.split("\r\n\r\n");
  return {
    status: Number(head.split(" ")[1]),
    replayed: /^idempotency-replayed: true$/im.test(head),
    body: JSON.parse(body),
  };
}

describe("the demo", () => {
  it("prints three commands that show a first run, a replay and a misuse; twice in a row", async () => {
    let charges = 0;
    for (let run = 0; run < 2; run += 1) {
      const demo = start({ PORT: "0" });
      const commands = (await demo.greeting()).split("\n").filter((line) => line.startsWith("curl"));
      expect(commands).toHaveLength(3);
      const [first, replay, misuse] = [
        await paste(commands[0] as string),
        await paste(commands[1] as string),
        await paste(commands[2] as string),
      ];
      expect(first).toMatchObject({ status: 201, replayed: false, body: { amount: 500 } });
      expect(replay).toEqual({ ...first, replayed: true });
      expect(misuse).toMatchObject({ status: 422, body: { code: "key-reused" } });
      charges += 1;
      const url = /http:\/\/127\.0\.0\.1:\d+/.exec(demo.output())?.[0];
      const list = (await (await fetch(`${url}/charges`)).json()) as { id: string }[];
      expect(list).toHaveLength(charges);
      const refund = () =>
        fetch(`${url}/refunds`, {
          method: "POST",
          headers: { "idempotency-key": `refund-${run}` },
          body: JSON.stringify({ charge: list.at(-1)?.id }),
        });
      expect((await refund()).status).toBe(201);
      expect((await refund()).headers.get("idempotency-replayed")).toBe("true");
      demo.child.kill("SIGTERM");
      const [code] = await once(demo.child, "exit");
      expect(code).toBe(0);
    }
  });

  it("says what to do when its port is taken or makes no sense", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    const { port } = taken.address() as AddressInfo;
    try {
      const demo = start({ PORT: String(port) });
      expect((await once(demo.child, "exit"))[0]).toBe(1);
      expect(demo.output()).toContain(
        `Port ${port} is taken. Choose another one: PORT=8788 npm start -w examples/payments`,
      );
    } finally {
      taken.close();
    }
    const demo = start({ PORT: "http" });
    await once(demo.child, "exit").catch(() => {});
    expect(demo.output()).toContain('PORT is "http" and must be a number');
  });
});

import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:https";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { portOf } from "../adapters/application.ts";
import { CommandLine } from "../cli/command-line.ts";

let latchkey: CommandLine;
const folder = mkdtempSync(join(tmpdir(), "latchkey-tls-"));
beforeAll(async () => {
  latchkey = await CommandLine.bundled();
  const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"];
  const files = ["-keyout", join(folder, "key.pem"), "-out", join(folder, "cert.pem")];
  const made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", ...subject, ...files];
  execFileSync("openssl", made, { stdio: "ignore" });
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
  return latchkey.remove();
});

it("an API behind TLS is judged as well, also with keys that only a raw connection can carry", async () => {
  const answered = new Map<string, string>();
  let executions = 0;
  const server = createServer(
    { key: readFileSync(join(folder, "key.pem")), cert: readFileSync(join(folder, "cert.pem")) },
    (req, res) => {
      req.resume().on("end", () => {
        const key = req.headers["idempotency-key"]?.toString();
        if (!key) return res.writeHead(400, { "content-type": "application/json" }).end("{}");
        executions += 1;
        const answer = answered.get(key) ?? `execution ${executions}`;
        answered.set(key, answer);
        res.end(answer);
      });
    },
  );
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const env = { NODE_EXTRA_CA_CERTS: join(folder, "cert.pem") };
    for (const host of ["localhost", "127.0.0.1"]) {
      const url = `https://${host}:${portOf(server)}/charges`;
      const { code, stdout, stderr } = await latchkey.run(
        ["verify", url, "--body", "{}", "--pause", "0ms", "--json"],
        { env },
      );
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      const { checks } = JSON.parse(stdout) as { checks: { id: string; outcome: string; reason: string }[] };
      const control = checks.find(({ id }) => id === "key-format.control-characters");
      expect(control).toMatchObject({ outcome: "pass", reason: "refused with 400" });
    }
    const untrusted = await latchkey.run(["verify", `https://localhost:${portOf(server)}/`, "--body", "{}"]);
    expect(untrusted).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/gives no answer: self-signed certificate/),
    });
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

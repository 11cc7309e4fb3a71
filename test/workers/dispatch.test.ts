import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { inspect } from "node:util";
import { afterEach, describe, expect, it } from "vitest";
import { type DispatchRequest, dispatchTo } from "../../src/workers/workers.ts";

describe("a kept request is sent", () => {
  const servers: Server[] = [];
  afterEach(async () => {
    for (const server of servers.splice(0)) {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    }
  });

  /** A service that answers all alike, and what it was sent. */
  async function service(answer: { status?: number; type?: string; body?: string; replayed?: boolean } = {}) {
    const seen: string[] = [];
    const server = createServer((req, res) => {
      seen.push(`${req.method} ${req.url} ${req.headers.authorization ?? ""}`);
      if (answer.replayed) res.setHeader("idempotency-replayed", "true");
      res.writeHead(answer.status ?? 201, { "content-type": answer.type ?? "text/plain" }).end(answer.body);
    });
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return { seen, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` };
  }
  const request = (target: string): DispatchRequest => ({
    method: "POST",
    target,
    tenant: "acme",
    scope: "acme",
    key: "key-1",
    attempts: 1,
    headers: [["idempotency-key", "key-1"]],
    body: Buffer.from("{}"),
  });
  const context = { signal: new AbortController().signal };
  const credentials = () => ({ authorization: "Bearer secret" });

  it("to the service, with what identifies its caller", async () => {
    const { seen, url } = await service();
    await dispatchTo(url, credentials)(request("/rides?x=1"), context);
    expect(seen).toEqual(["POST /rides?x=1 Bearer secret"]);
  });

  it.each(["//HOST/x", "/\\\\HOST/x", "@HOST/x", "http://HOST/x", "x"])(
    "nowhere else, whatever its client wrote: %s",
    async (target) => {
      const elsewhere = await service();
      const { url } = await service();
      const { host } = new URL(elsewhere.url);
      const sent = dispatchTo(url, credentials)(request(target.replace("HOST", host)), context);
      await sent.catch(() => {});
      expect(elsewhere.seen).toEqual([]);
    },
  );

  it.each([
    [{ status: 401 }, /answered 401/],
    [{ status: 404 }, /answered 404/],
    [{ status: 422, type: "application/problem+json", body: '{"code":"key-reused"}' }, /422 key-reused/],
    [{ status: 412, type: "application/problem+json", body: '{"code":"late-arrival"}' }, /412 late-arrival/],
    [
      { status: 503, type: "application/problem+json", body: '{"code":"store-unavailable"}' },
      /store-unavailable/,
    ],
    [{ status: 400, type: "application/problem+json", body: "nonsense" }, /400 undefined/],
  ])("and what did not let it in is told: %j", async (answer, message) => {
    const { url } = await service(answer);
    await expect(dispatchTo(url)(request("/rides"), context)).rejects.toThrow(message);
  });

  it.each(["/rides/ada@example.com?token=s3cret", "http://elsewhere/ada@example.com?token=s3cret"])(
    "and what went wrong with it is told without what its client wrote: %s",
    async (target) => {
      const { url } = await service({ status: 404 });
      const failed = dispatchTo(url)(request(target), context);
      await expect(failed).rejects.toThrow(/a kept request/);
      expect(inspect(await failed.catch((error) => error))).not.toMatch(/ada|s3cret/);
    },
  );

  it.each([
    { status: 402, body: "declined" },
    { status: 500 },
    { status: 409, type: "application/problem+json", body: '{"code":"in-flight"}' },
    { status: 422, type: "application/problem+json", body: '{"code":"own"}', replayed: true },
  ])("an answer of the service itself is none of the worker's business: %j", async (answer) => {
    const { url } = await service(answer);
    await dispatchTo(url)(request("/rides"), context);
  });
});

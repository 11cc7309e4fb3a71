import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import express from "express";
import Koa from "koa";
import { afterEach, describe, expect, it } from "vitest";
import { idempotent as expressIdempotent } from "../../src/adapters/express.ts";
import { idempotent as koaIdempotent } from "../../src/adapters/koa.ts";
import { createLatchkey } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";

/** A middleware outside of Latchkey that answers 503 when it has waited long enough, while the handler goes on. */
describe("an answer from outside while the handler is at work", () => {
  let server: Server | undefined;
  afterEach(async () => {
    server?.closeAllConnections();
    await new Promise((resolve) => server?.close(resolve));
  });

  async function listen(listener: Parameters<typeof createServer>[1]): Promise<string> {
    server = createServer(listener);
    await new Promise<void>((resolve) => server?.listen(0, "127.0.0.1", resolve));
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  }

  const charge = (url: string) => fetch(url, { method: "POST", headers: { "idempotency-key": "one" } });
  const open = () => createLatchkey({ store: memoryStore(), tenant: "single" });

  /** A handler that is at work until it is released, and counts how often it began. */
  function slowHandler() {
    let release = () => {};
    const released = new Promise<void>((resolve) => {
      release = resolve;
    });
    const handler = { begun: 0, release: () => release(), work: () => released };
    return handler;
  }

  async function expectNoSecondExecution(url: string, handler: ReturnType<typeof slowHandler>) {
    const first = await charge(url);
    expect(first.status).toBe(503);
    expect(await first.text()).toBe("too slow");
    const retry = await charge(url);
    expect(retry.status).toBe(409);
    expect(await retry.json()).toMatchObject({ code: "outcome-unknown" });
    expect(handler.begun).toBe(1);
    handler.release();
  }

  it("express: does not free the key for a second execution", async () => {
    const app = express();
    const handler = slowHandler();
    app.use((_req, res, next) => {
      setTimeout(() => {
        if (!res.headersSent) res.status(503).send("too slow");
      }, 30);
      next();
    });
    app.post("/", expressIdempotent(open()), async (_req, res) => {
      handler.begun += 1;
      await handler.work();
      res.status(201).end();
    });
    await expectNoSecondExecution(await listen(app), handler);
  });

  it("koa: does not free the key for a second execution", async () => {
    const app = new Koa();
    const handler = slowHandler();
    app.use(async (ctx, next) => {
      const patience = new Promise<"over">((resolve) => setTimeout(resolve, 30, "over"));
      if ((await Promise.race([next(), patience])) !== "over") return;
      ctx.status = 503;
      ctx.body = "too slow";
    });
    app.use(koaIdempotent(open()));
    app.use(async (ctx) => {
      handler.begun += 1;
      await handler.work();
      ctx.status = 201;
    });
    await expectNoSecondExecution(await listen(app.callback()), handler);
  });

  it("express: the handler's own 500 still frees the key", async () => {
    const app = express();
    let begun = 0;
    app.post("/", expressIdempotent(open()), async (_req, res) => {
      begun += 1;
      await new Promise((resolve) => setTimeout(resolve, 5));
      res.status(begun === 1 ? 500 : 201).end();
    });
    const url = await listen(app);
    expect([(await charge(url)).status, (await charge(url)).status]).toEqual([500, 201]);
    expect(begun).toBe(2);
  });
});

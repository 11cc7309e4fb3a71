// One application on one framework, bare or behind one protection, in a process of its own: `http-server.js express
// latchkey fresh`. It tells its parent the port, and whenever it is asked, how much processor time it has used.
import { serve } from "@hono/node-server";
import express from "express";
import Fastify from "fastify";
import { Hono } from "hono";
import { createLatchkey } from "latchkey";
import { idempotent as expressIdempotent } from "latchkey/express";
import { idempotent as fastifyIdempotent } from "latchkey/fastify";
import { idempotent as honoIdempotent } from "latchkey/hono";
import { memoryStore } from "latchkey/memory";
import { migrate, postgresStore } from "latchkey/postgres";
import { plainPool, poolOn, withoutGroupCommit } from "../lib/contenders.js";
import { guardedLatchkey, guardedRoute, isGuarded } from "../lib/guards.js";
import { charge } from "../lib/payload.js";
import { expressPeer, nodeIdempotencyGlue } from "./peers.js";

/** @typedef {import("../lib/http.js").Protection} Protection */

const [framework, protection, keys, databaseUrl] =
  /** @type {[import("../lib/http.js").Framework, Protection, import("../lib/http.js").Keys, string | undefined]} */ (
    process.argv.slice(2)
  );

/** @type {Record<import("../lib/http.js").Framework, () => Promise<number>>} */
const applications = { express: onExpress, fastify: onFastify, hono: onHono };
const port = await applications[framework]();
process.send?.({ port });
process.on("message", () => process.send?.({ cpu: process.cpuUsage() }));
// Whoever started this process is gone: so is the reason to run.
process.on("disconnect", () => process.exit());

async function onExpress() {
  const app = express();
  app.use(express.json());
  if (isLatchkey(protection)) app.use(expressIdempotent(await latchkeyFor(protection)));
  else if (protection === "node-idempotency") app.use(nodeIdempotencyGlue());
  const peer = protection === "express-idempotency" ? expressPeer() : undefined;
  if (peer !== undefined) app.use(peer.middleware);
  app.post("/charges", (req, res) => {
    // This peer calls the handler for a duplicate as well, and leaves it to the handler to notice.
    if (peer?.isHit(req)) return;
    res.status(201).json(charge);
  });
  return new Promise((/** @type {(port: number) => void} */ resolve) => {
    const server = app.listen(0, "127.0.0.1", () => resolve(portOf(server.address())));
  });
}

async function onFastify() {
  const app = Fastify();
  if (isLatchkey(protection)) {
    await app.register(fastifyIdempotent(await latchkeyFor(protection), guardedRoute(protection)));
  }
  if (protection === "plain-statements") await addPlainStatements(app);
  app.post("/charges", async (_request, reply) => {
    reply.code(201);
    return charge;
  });
  await app.listen({ port: 0, host: "127.0.0.1" });
  return portOf(app.server.address());
}

async function onHono() {
  const app = new Hono();
  if (isLatchkey(protection)) app.use(honoIdempotent(await latchkeyFor(protection)));
  app.post("/charges", async (c) => {
    // The other frameworks parse the body before the handler runs; here the handler does.
    await c.req.json();
    return c.json(charge, 201);
  });
  return new Promise((/** @type {(port: number) => void} */ resolve) => {
    serve({ fetch: app.fetch, port: 0, hostname: "127.0.0.1" }, (address) => resolve(address.port));
  });
}

/** @param {Protection} name */
function isLatchkey(name) {
  return name.startsWith("latchkey");
}

/** @param {Protection} name */
async function latchkeyFor(name) {
  if (isGuarded(name)) return guardedLatchkey(name, databaseUrl);
  if (name === "latchkey") {
    // A short retention keeps the memory of a long run flat; the reaper is part of what is measured. What is replayed must
    // not expire meanwhile: of those who come in that moment one executes, and the others are refused.
    const retentionMs = keys === "replay" ? 600_000 : 2_000;
    const latchkey = createLatchkey({ store: memoryStore(), tenant: "single", retentionMs });
    setInterval(() => void latchkey.reap({ limit: 100_000 }), 1_000).unref();
    return latchkey;
  }
  const pool = poolOn(databaseUrl ?? "");
  await migrate(pool);
  const options = name === "latchkey-postgres" ? {} : withoutGroupCommit;
  return createLatchkey({ store: postgresStore(pool, options), tenant: "single" });
}

/**
 * What a careful team writes by hand: the key is reserved before the handler and completed before the answer.
 *
 * @param {import("fastify").FastifyInstance} app
 */
async function addPlainStatements(app) {
  const { operation } = await plainPool(databaseUrl ?? "");
  /** @type {WeakMap<import("fastify").FastifyRequest, { answered: () => void, stored: Promise<unknown> }>} */
  const operations = new WeakMap();
  app.addHook("preHandler", (request) => {
    const key = String(request.headers["idempotency-key"]);
    return new Promise((/** @type {(value?: undefined) => void} */ resolve, reject) => {
      const stored = operation(key, () => {
        resolve();
        return new Promise((/** @type {(value?: undefined) => void} */ answered) =>
          operations.set(request, { answered, stored }),
        );
      });
      stored.catch(reject);
    });
  });
  app.addHook("onSend", async (request) => {
    operations.get(request)?.answered();
    await operations.get(request)?.stored;
  });
}

/** @param {import("node:net").AddressInfo | string | null} address */
function portOf(address) {
  if (address === null || typeof address === "string") throw new Error("the server has no port");
  return address.port;
}

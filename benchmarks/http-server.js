// One application on one framework, bare or behind Latchkey, in a process of its own: `http-server.js express bare`.
import express from "express";
import Fastify from "fastify";
import { createLatchkey } from "latchkey";
import { idempotent as expressIdempotent } from "latchkey/express";
import { idempotent as fastifyIdempotent } from "latchkey/fastify";
import { memoryStore } from "latchkey/memory";

const [framework, variant] = process.argv.slice(2);
const isProtected = variant === "latchkey";

/** What a small payments API answers: about 300 bytes. */
const charge = {
  id: "ch_3MmlLrLkdIwHu7ix0snN0B15",
  object: "charge",
  amount: 500,
  currency: "usd",
  description: "A coffee, and another one for the colleague who fixed the build",
  status: "succeeded",
  receipt: "https://example.com/receipts/ch_3MmlLrLkdIwHu7ix0snN0B15",
  created: 1_771_000_000,
  captured: true,
};

// A short retention keeps the memory of a long run flat; the reaper is part of what is measured.
const latchkey = createLatchkey({ store: memoryStore(), tenant: "single", retentionMs: 2_000 });
if (isProtected) setInterval(() => void latchkey.reap({ limit: 100_000 }), 1_000).unref();

if (framework === "express") {
  const app = express();
  app.use(express.json());
  if (isProtected) app.use(expressIdempotent(latchkey));
  app.post("/charges", (_req, res) => {
    res.status(201).json(charge);
  });
  const server = app.listen(0, "127.0.0.1", () => tell(server.address()));
} else if (framework === "fastify") {
  const app = Fastify();
  if (isProtected) await app.register(fastifyIdempotent(latchkey));
  app.post("/charges", async (_request, reply) => {
    reply.code(201);
    return charge;
  });
  await app.listen({ port: 0, host: "127.0.0.1" });
  tell(app.server.address());
} else {
  throw new Error(`there is no application for "${framework}"`);
}

/** @param {import("node:net").AddressInfo | string | null} address */
function tell(address) {
  process.send?.({ port: typeof address === "object" ? address?.port : undefined });
}

// Whoever started this process is gone: so is the reason to run.
process.on("disconnect", () => process.exit());

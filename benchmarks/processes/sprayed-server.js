// A payments API on Postgres whose tenants have limits, or none: `sprayed-server.js <database URL> <limits as JSON>`. It
// tells its parent the port.
import Fastify from "fastify";
import { createLatchkey } from "latchkey";
import { idempotent } from "latchkey/fastify";
import { migrate, postgresStore } from "latchkey/postgres";
import { poolOn } from "../lib/contenders.js";
import { charge } from "../lib/payload.js";

const [databaseUrl = "", limits = "null"] = process.argv.slice(2);
const pool = poolOn(databaseUrl);
await migrate(pool);
const latchkey = createLatchkey({
  store: postgresStore(pool),
  tenant: (request) => request.header("x-tenant"),
  limits: JSON.parse(limits) ?? undefined,
});
const app = Fastify();
await app.register(idempotent(latchkey));
app.post("/charges", async (_request, reply) => {
  reply.code(201);
  return charge;
});
await app.listen({ port: 0, host: "127.0.0.1" });
const address = app.server.address();
if (address === null || typeof address === "string") throw new Error("the server has no port");
process.send?.({ port: address.port });
process.on("disconnect", () => process.exit());

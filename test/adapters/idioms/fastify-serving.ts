import createFastify, { type FastifyInstance } from "fastify";
import type { Application } from "../application.ts";
import { custom } from "../custom.ts";

/** An application that a test writes out by itself, in Fastify's own idioms. */
export function serving(build: (app: FastifyInstance, application: Application) => void | Promise<void>) {
  return custom("fastify", async (application) => {
    const app = createFastify({ forceCloseConnections: true });
    await build(app, application);
    await app.listen({ port: 0, host: "127.0.0.1" });
    return app.server;
  });
}

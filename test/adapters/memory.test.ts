import { describe, expect } from "vitest";
import { collectGarbage } from "../support/garbage.ts";
import { bytes, stream } from "./application.ts";
import { keptConnection } from "./client.ts";
import { expressVersions } from "./frameworks/express.ts";
import { fastify } from "./frameworks/fastify.ts";
import { fetch } from "./frameworks/fetch.ts";
import { hono } from "./frameworks/hono.ts";
import { koaOrders } from "./frameworks/koa.ts";
import { node } from "./frameworks/node.ts";
import { registerCase } from "./harness.ts";

/** Memory outside of the heap, where bodies are, once nothing is left to collect. */
async function bodyBytes(): Promise<number> {
  for (let round = 0; round < 3; round++) {
    collectGarbage();
    await new Promise((resolve) => setImmediate(resolve));
  }
  return process.memoryUsage().arrayBuffers;
}

const connections = 6;
const answerBytes = 2 * 1024 * 1024;

// One of each: where the body parser stands makes no difference to the answer.
const frameworks = [fetch, node, expressVersions[0], fastify, hono, koaOrders[0]];

describe("memory", () => {
  for (const framework of frameworks) {
    if (framework === undefined) throw new Error("a framework is missing");
    for (const streaming of [false, true]) {
      registerCase(framework, {
        name: `${framework.name}: connections that stay open hold no answer (streaming: ${streaming})`,
        async run(trial) {
          const site = await trial.start({
            // Too large to be stored, so that whatever is still there is held by nobody who should.
            policy: { streaming, responseBytesMax: 1024 },
            handler: () =>
              streaming
                ? stream(async function* () {
                    for (let sent = 0; sent < answerBytes; sent += 65_536) yield new Uint8Array(65_536);
                  })
                : bytes(new Uint8Array(answerBytes)),
          });
          const before = await bodyBytes();
          const agents = Array.from({ length: connections }, () => keptConnection());
          for (const [index, agent] of agents.entries()) {
            const answer = await site.send({ key: `key-${index}`, agent });
            expect(answer.body.byteLength).toBe(answerBytes);
          }
          const grown = (await bodyBytes()) - before;
          for (const agent of agents) agent.destroy();
          // The last answer may still be in somebody's hands, and some buffers of the sockets. The others are gone.
          expect(grown).toBeLessThan(2 * answerBytes);
        },
      });
    }
  }
});

import { Readable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import createFastify, { type FastifyInstance, type RouteHandlerMethod } from "fastify";
import { describe, expect, it } from "vitest";
import { idempotent } from "../../../src/adapters/fastify.ts";
import { createLatchkey, currentOperation, NoOperationError } from "../../../src/index.ts";
import { memoryStore } from "../../../src/stores/memory/store.ts";
import { deferred } from "../../support/deferred.ts";

/** Sends one request to a handler, and then lets go on whatever waits for it. */
async function answered(handler: (goOn: Promise<void>) => RouteHandlerMethod) {
  const goOn = deferred();
  const app = await application(handler(goOn));
  const answer = await app.inject({
    method: "POST",
    url: "/charges",
    headers: { "idempotency-key": "k" },
  });
  // Whoever is over is so by now.
  await sleep(1);
  goOn.resolve();
  await app.close();
  return answer;
}

async function application(handler: RouteHandlerMethod): Promise<FastifyInstance> {
  const app = createFastify();
  await app.register(idempotent(createLatchkey({ store: memoryStore(), tenant: "single" })));
  app.post("/charges", handler);
  return app;
}

describe("when a handler of Fastify is over", () => {
  let later: Promise<string> | undefined;

  it("one that answers and goes on has its operation until it returns", async () => {
    let left: Promise<string> | undefined;
    const answer = await answered((goOn) => async (_request, reply) => {
      reply.code(201).send({});
      later = goOn.then(() => currentOperation().key);
      left = later.then(() => sleep(1)).then(() => currentOperation().key);
      await later;
      return reply;
    });
    expect(answer.statusCode).toBe(201);
    expect(await later).toBe("k");
    await expect(left).rejects.toThrow(NoOperationError);
  });

  it("what makes its answer after it has returned has its operation", async () => {
    const app = await application(async () => Readable.from(pieces()));
    app.addHook("onSend", async (_request, reply) => {
      await sleep(1);
      reply.header("etag", `"${currentOperation().key}"`);
    });
    async function* pieces() {
      for (const piece of ["one", "two"]) {
        await sleep(1);
        yield `${currentOperation().key} ${piece} `;
      }
    }
    const headers = { "idempotency-key": "k" };
    const answer = await app.inject({ method: "POST", url: "/charges", headers });
    expect([answer.body, answer.headers.etag]).toEqual(["k one k two ", '"k"']);
    await app.close();
  });

  it("nobody can tell of one that gives nothing, and it keeps its operation", async () => {
    const answer = await answered((goOn) => (_request, reply) => {
      later = goOn.then(() => currentOperation().key);
      setTimeout(() => reply.code(201).send({}), 1);
    });
    expect(answer.statusCode).toBe(201);
    expect(await later).toBe("k");
  });

  it("nor of one that gives its reply", async () => {
    const answer = await answered((goOn) => (_request, reply) => {
      later = goOn.then(() => currentOperation().key);
      return reply.code(201).send({});
    });
    expect(answer.statusCode).toBe(201);
    expect(await later).toBe("k");
  });

  it.each<[string, number, RouteHandlerMethod]>([
    ["that gives its answer at once", 200, () => ({ done: true })],
    ["that gives nothing but a promise of it", 200, () => Promise.resolve({ done: true })],
    [
      "that fails at once",
      500,
      () => {
        throw new Error("declined");
      },
    ],
    ["that fails later", 500, () => Promise.reject(new Error("declined"))],
  ])("one %s has none afterwards", async (_how, status, handler) => {
    const answer = await answered(
      (goOn) =>
        function (request, reply) {
          later = goOn.then(() => currentOperation().key);
          return handler.call(this, request, reply);
        },
    );
    expect(answer.statusCode).toBe(status);
    await expect(later).rejects.toThrow(NoOperationError);
  });

  it("a handler is called as it would be without, and its name is its own", async () => {
    const seen: unknown[] = [];
    const names: string[] = [];
    const app = await application(async function charge(this: FastifyInstance, request, reply) {
      seen.push(this, request.method, reply.request === request);
      return {};
    });
    app.addHook("onRoute", ({ handler }) => void names.push(handler.name));
    app.route({ method: "PATCH", url: "/charges", handler: async function change() {} });
    await app.inject({ method: "POST", url: "/charges", headers: { "idempotency-key": "k" } });
    expect(seen).toEqual([app, "POST", true]);
    expect(names).toEqual(["change"]);
    await app.close();
  });
});

import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import createFastify, { type FastifyInstance, type RouteHandlerMethod } from "fastify";
import { afterEach, describe, expect, it } from "vitest";
import { idempotent } from "../../../src/adapters/fastify.ts";
import { createLatchkey, currentOperation, NoOperationError, type PolicyInput } from "../../../src/index.ts";
import { memoryStore } from "../../../src/stores/memory/store.ts";
import { deferred } from "../../support/deferred.ts";
import { untilItIsOver } from "../../support/operation.ts";

let app: FastifyInstance;
/** The response has told everybody of its end. */
let closed: Promise<unknown>;

afterEach(() => app.close());

/** An application with one route, and what others want of it before it is there. */
async function listening(
  handler: RouteHandlerMethod,
  prepare: (app: FastifyInstance) => void = () => {},
  policy: PolicyInput = {},
): Promise<FastifyInstance> {
  app = createFastify({ forceCloseConnections: true });
  await app.register(idempotent(createLatchkey({ store: memoryStore(), tenant: "single" }), policy));
  prepare(app);
  app.post("/charges", handler);
  app.server.on("request", (_req, res) => {
    closed = once(res, "close");
  });
  await app.listen({ port: 0, host: "127.0.0.1" });
  return app;
}

async function send(): Promise<{ readonly status: number; readonly text: string }> {
  const { port } = app.server.address() as AddressInfo;
  const headers = { "idempotency-key": "k" };
  const answer = await fetch(`http://127.0.0.1:${port}/charges`, { method: "POST", headers });
  return { status: answer.status, text: await answer.text() };
}

/** Sends one request to a handler, and then lets go on whatever waits for it. */
async function answered(handler: (goOn: Promise<void>) => RouteHandlerMethod) {
  const goOn = deferred();
  await listening(handler(goOn));
  const answer = await send();
  await settledDown();
  goOn.resolve();
  return answer;
}

/** All that is left is what waits for the test. */
async function settledDown(): Promise<void> {
  await closed;
  await nextTurn();
}

const keyOrError = () => {
  try {
    return currentOperation().key;
  } catch (error) {
    return (error as Error).constructor.name;
  }
};

describe("when a handler of Fastify is over", () => {
  let later: Promise<string> | undefined;

  it("one that answers and goes on has its operation until it returns", async () => {
    let left: Promise<never> | undefined;
    const answer = await answered((goOn) => async (_request, reply) => {
      reply.code(201).send({});
      later = goOn.then(() => currentOperation().key);
      left = later.then(untilItIsOver);
      await later;
      return reply;
    });
    expect(answer.status).toBe(201);
    expect(await later).toBe("k");
    await expect(left).rejects.toThrow(NoOperationError);
  });

  it("what makes its answer after it has returned has its operation", async () => {
    const seen: string[] = [];
    async function* pieces() {
      for (const piece of ["one", "two"]) {
        await sleep(1);
        yield `${currentOperation().key} ${piece} `;
      }
    }
    await listening(
      async (_request, reply) => {
        for (const event of ["finish", "close"])
          reply.raw.on(event, () => seen.push(`${event} ${keyOrError()}`));
        return Readable.from(pieces());
      },
      (own) => {
        own.addHook("onSend", async () => {
          await sleep(1);
          seen.push(`onSend ${keyOrError()}`);
        });
        own.addHook("onResponse", (_request, _reply, done) => {
          seen.push(`onResponse ${keyOrError()}`);
          done();
        });
      },
    );
    expect((await send()).text).toBe("k one k two ");
    await settledDown();
    expect(seen.sort()).toEqual(["close k", "finish k", "onResponse k", "onSend k"]);
  });

  it("what it has begun to send sees that its time is up, and is not cut off by that", async () => {
    const seen: unknown[] = [];
    const isOver = deferred();
    async function* pieces() {
      try {
        for (let piece = 0; !currentOperation().signal.aborted; piece += 1) {
          await sleep(5);
          yield `${piece} `;
        }
      } finally {
        seen.push(keyOrError());
        isOver.resolve();
      }
    }
    await listening(async () => Readable.from(pieces()), undefined, { executionTimeoutMs: 20 });
    expect((await send()).status).toBe(504);
    await isOver;
    expect(seen).toEqual(["k"]);
  });

  it("nobody can tell of one that gives nothing, and it keeps its operation", async () => {
    const answer = await answered((goOn) => (_request, reply) => {
      later = goOn.then(() => currentOperation().key);
      setTimeout(() => reply.code(201).send({}), 1);
    });
    expect(answer.status).toBe(201);
    expect(await later).toBe("k");
  });

  it("nor of one that gives its reply", async () => {
    const answer = await answered((goOn) => (_request, reply) => {
      later = goOn.then(() => currentOperation().key);
      return reply.code(201).send({});
    });
    expect(answer.status).toBe(201);
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
          later = goOn.then(untilItIsOver);
          return handler.call(this, request, reply);
        },
    );
    expect(answer.status).toBe(status);
    await expect(later).rejects.toThrow(NoOperationError);
  });

  it("one that is called again is not over before all of its calls are", async () => {
    let calls = 0;
    const goOn = deferred();
    await listening(
      async (_request, reply) => {
        calls += 1;
        if (calls === 1) throw new Error("try again");
        reply.send({ calls });
        await goOn;
        later = Promise.resolve(keyOrError());
        return reply;
      },
      // Registered after Latchkey, and so around what that has made of the handler.
      (own) =>
        own.addHook("onRoute", (route) => {
          const { handler } = route;
          route.handler = async function (request, reply) {
            try {
              return await handler.call(this, request, reply);
            } catch {
              return handler.call(this, request, reply);
            }
          };
        }),
    );
    expect((await send()).text).toBe('{"calls":2}');
    await settledDown();
    goOn.resolve();
    await settledDown();
    expect(await later).toBe("k");
  });
});

describe("a handler of Fastify that tells its end", () => {
  it("is called as it would be otherwise, with whatever it is given", async () => {
    const seen: unknown[] = [];
    await listening(
      async function (this: FastifyInstance, request, reply, ...more: unknown[]) {
        seen.push(this === app, request.method, reply.request === request, ...more);
        return {};
      },
      (own) =>
        own.addHook("onRoute", (route) => {
          const handler = route.handler as (...args: unknown[]) => unknown;
          route.handler = function (...args) {
            return handler.call(this, ...args, "given by another plugin");
          };
        }),
    );
    await send();
    expect(seen).toEqual([true, "POST", true, "given by another plugin"]);
  });

  it("looks like the one that was registered", async () => {
    const looks: unknown[] = [];
    const charge = Object.assign(async function charge() {}, { role: "admin" });
    await listening(charge, (own) =>
      own.addHook("onRoute", ({ handler }) => {
        looks.push(handler.name, handler.length, (handler as typeof charge).role);
      }),
    );
    expect(looks).toEqual(["charge", 0, "admin"]);
  });

  it("and one that is no function is refused by Fastify", async () => {
    await listening(async () => ({}));
    const other = createFastify();
    await other.register(idempotent(createLatchkey({ store: memoryStore(), tenant: "single" })));
    expect(() => other.route({ method: "POST", url: "/x", handler: {} as RouteHandlerMethod })).toThrow(
      /function/,
    );
    await other.close();
  });
});

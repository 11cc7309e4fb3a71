import { fork } from "node:child_process";
import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Hono } from "hono";
import { describe, expect, it } from "vitest";
import { idempotent } from "../../src/adapters/hono.ts";
import type { CapturedResponse } from "../../src/core/response.ts";
import { createLatchkey, currentOperation, NoOperationError } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { deferred } from "../support/deferred.ts";

const open = () => createLatchkey({ store: memoryStore(), tenant: "single" });

describe("currentOperation", () => {
  it.each([false, true])("is there until the result is, whoever else is running: %s", async (isBusy) => {
    const latchkey = open();
    const [goOn, otherMayEnd] = [deferred(), deferred()];
    const other = isBusy ? latchkey.run({ tenant: "acme", key: "other" }, () => otherMayEnd) : undefined;
    let afterwards: Promise<string> | undefined;
    const during = await latchkey.run({ tenant: "acme", key: "key-1" }, async () => {
      afterwards = goOn.then(() => currentOperation().key);
      await sleep(1);
      return currentOperation().key;
    });
    expect(during).toBe("key-1");
    await sleep(1);
    goOn.resolve();
    await expect(afterwards).rejects.toThrow(NoOperationError);
    otherMayEnd.resolve();
    await other;
  });

  it("is there for a handler that goes on after its time is up", async () => {
    const latchkey = open();
    const goOn = deferred();
    let late: Promise<{ key: string; aborted: boolean }> | undefined;
    const policy = { executionTimeoutMs: 20 };
    const running = latchkey.run({ tenant: "acme", key: "key-1", policy }, () => {
      late = goOn.then(() => ({ key: currentOperation().key, aborted: currentOperation().signal.aborted }));
      return late;
    });
    await expect(running).rejects.toThrow(/took too long/);
    await sleep(1);
    goOn.resolve();
    expect(await late).toEqual({ key: "key-1", aborted: true });
  });

  it.each([
    ["answers", () => ({ card: "4242" })],
    ["throws", () => Promise.reject(new Error("declined"))],
  ])("is there for what the policy makes of work that %s", async (_how, work) => {
    const asked: string[] = [];
    const latchkey = open();
    const policy = {
      onServerError: "store",
      redact: {
        body: ({ body }: CapturedResponse) => {
          asked.push(currentOperation().key);
          return body;
        },
      },
    } as const;
    await latchkey.run({ tenant: "acme", key: "key-1", policy }, work as () => unknown).catch(() => {});
    expect(asked).toEqual(["key-1"]);
  });

  it("is there until the last byte of an answer that is made while it is read", async () => {
    const app = new Hono().post("/charges", idempotent(open()), () => {
      const pieces = ["one ", "two ", "three"];
      const body = new ReadableStream({
        async start(controller) {
          for (const piece of pieces) {
            await sleep(2);
            controller.enqueue(new TextEncoder().encode(`${currentOperation().key} ${piece}`));
          }
          controller.close();
        },
      });
      return new Response(body, { status: 201 });
    });
    const answer = await app.request("/charges", { method: "POST", headers: { "idempotency-key": "k" } });
    expect([answer.status, await answer.text()]).toEqual([201, "k one k two k three"]);
  });

  it("is found by every handler, and costs the rest of the process nothing while none is running", async () => {
    const child = fork(fileURLToPath(new URL("../fixtures/context-watcher.ts", import.meta.url)), {
      execArgv: ["--import", "tsx"],
    });
    const [[told]] = await Promise.all([once(child, "message"), once(child, "exit")]);
    // Later versions of Node keep contexts without watching every promise.
    const isWatched = Number(process.versions.node.split(".")[0]) < 24;
    const ofAll = (value: boolean) =>
      Object.fromEntries(["hono", "fastify", "hook", "koa", "node"].map((name) => [name, value]));
    expect(told).toEqual({
      before: false,
      during: { run: isWatched, ...ofAll(isWatched) },
      afterEach: ofAll(false),
      after: false,
      afterAll: false,
      wrong: [],
    });
    expect(child.exitCode).toBe(0);
  });
});

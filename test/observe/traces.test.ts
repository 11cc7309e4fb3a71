import { randomUUID } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SpanKind, SpanStatusCode } from "@opentelemetry/api";
import { AlwaysOffSampler, type Sampler, SamplingDecision } from "@opentelemetry/sdk-trace-base";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { idempotent } from "../../src/adapters/fetch.ts";
import {
  createLatchkey,
  currentOperation,
  type LatchkeyOptions,
  type Operation,
  type Store,
} from "../../src/index.ts";
import { instrument } from "../../src/observe/opentelemetry.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { manualClock } from "../../src/testing/index.ts";
import { completer, relay } from "../../src/workers/workers.ts";
import { activeSpanId, idOf, linksOf, parentOf, recordSpans, traceparentOf } from "./span-recorder.ts";

const folder = mkdtempSync(join(tmpdir(), "latchkey-traces-"));
const stops: (() => void)[] = [];
const stores: Store[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0)) stop();
  for (const store of stores.splice(0)) await store.close();
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** One that keeps everything that traces need, in a file of its own. */
function transactionalStore(): Store {
  const store = sqliteStore(join(folder, `${randomUUID()}.db`)) as Store;
  stores.push(store);
  return store;
}

function traced(options: Partial<LatchkeyOptions> = {}, sampler?: Sampler) {
  const recorder = recordSpans(sampler);
  const open = (more: Partial<LatchkeyOptions> = {}) => {
    const latchkey = createLatchkey({ store: memoryStore(), tenant: "single", ...options, ...more });
    stops.push(instrument(latchkey, { tracerProvider: recorder.provider, meterProvider: false }));
    return latchkey;
  };
  return { ...recorder, open, latchkey: open() };
}

type Latchkey = ReturnType<typeof createLatchkey>;

const run = (latchkey: Latchkey, work: (op: Operation) => unknown = () => "done", key = "key-1") =>
  latchkey.run({ tenant: "acme", key }, work);

const sqlite = () => traced({ store: transactionalStore() });

describe("the spans of a request", () => {
  it("are reserve, execute and settle, and what the handler traces is found below execute", async () => {
    const { latchkey, within, span, spans } = traced();
    const protect = idempotent(latchkey, { name: "charges" })(async () => {
      await within("user", async () => {});
      return Response.json({ ok: true }, { status: 201 });
    });
    await within("server", () =>
      protect(new Request("http://x/", { method: "POST", headers: { "idempotency-key": "k" } })),
    );
    const server = idOf(span("server"));
    expect(parentOf(span("idempotency.reserve"))).toBe(server);
    expect(parentOf(span("idempotency.execute"))).toBe(server);
    expect(parentOf(span("user"))).toBe(idOf(span("idempotency.execute")));
    expect(parentOf(span("idempotency.settle"))).toBe(idOf(span("idempotency.execute")));
    expect(new Set(spans().map((one) => one.spanContext().traceId)).size).toBe(1);
    expect(span("idempotency.reserve").attributes).toEqual({
      "idempotency.scope_digest": expect.stringMatching(/^sha256:[0-9a-f]{16}$/),
      "idempotency.route": "charges",
      "idempotency.outcome": "created",
      "idempotency.answered_from": "store",
      "idempotency.attempt": 1,
    });
    expect(span("idempotency.execute").attributes).toEqual({
      "idempotency.scope_digest": span("idempotency.reserve").attributes["idempotency.scope_digest"],
      "idempotency.route": "charges",
      "idempotency.attempt": 1,
      "idempotency.settled": "stored",
    });
    expect(span("idempotency.settle").attributes).toEqual({ "idempotency.settlement": "complete" });
    for (const one of spans()) expect(one.status.code).toBe(SpanStatusCode.UNSET);
  });

  it("say nothing of keys, tenants, bodies or what errors say", async () => {
    const { latchkey, spans } = traced({ tenant: () => "tenant-s3cret" });
    const protect = idempotent(latchkey)(() => {
      throw new Error("error-s3cret");
    });
    const send = () =>
      protect(
        new Request("http://x/path-s3cret?query-s3cret", {
          method: "POST",
          headers: { "idempotency-key": "key-s3cret" },
          body: "body-s3cret",
        }),
      );
    await send().catch(() => {});
    await send().catch(() => {});
    expect(spans().length).toBeGreaterThan(4);
    const shown = spans().map(({ name, attributes, status, events, links }) =>
      JSON.stringify({ name, attributes, status, events, links }),
    );
    expect(shown.join()).not.toContain("s3cret");
  });

  it("are errors where nobody knows the outcome, the time is up, or the store does not answer", async () => {
    const clock = manualClock();
    const { latchkey, span, reset, open } = traced({
      runtime: clock,
      store: memoryStore({ clock: clock.now }),
    });
    const unknown = latchkey.run({ tenant: "acme", key: "a", policy: { onServerError: "reconcile" } }, () => {
      throw new Error("no");
    });
    await unknown.catch(() => {});
    expect(span("idempotency.execute").status).toEqual({
      code: SpanStatusCode.ERROR,
      message: "nobody knows the outcome",
    });
    reset();

    const timed = { executionTimeoutMs: 100, onCrash: "retry" } as const;
    const slow = latchkey.run({ tenant: "acme", key: "b", policy: timed }, () => new Promise(() => {}));
    slow.catch(() => {});
    await clock.advance(200);
    expect(span("idempotency.execute").status.message).toBe("the handler took too long");
    reset();

    const down = Object.assign(memoryStore(), { reserve: () => Promise.reject(new Error("down")) });
    await run(open({ store: down })).catch(() => {});
    expect(span("idempotency.reserve").status.code).toBe(SpanStatusCode.ERROR);
    expect(span("idempotency.reserve").attributes["idempotency.outcome"]).toBe("store_down");
  });
});

describe("the traces of one key point to each other", () => {
  it("a replay to the execution that made the answer, also from another process", async () => {
    const { latchkey, open, span, reset } = traced();
    await run(latchkey);
    const executed = idOf(span("idempotency.execute"));
    reset();
    const other = open({ store: latchkey.store });
    await run(other);
    const replayed = span("idempotency.reserve");
    expect(replayed.attributes["idempotency.outcome"]).toBe("replay");
    expect(linksOf(replayed)).toEqual([executed]);
  });

  it("a replay from this process's memory, too", async () => {
    const { latchkey, span, reset } = traced({ cache: {} });
    await run(latchkey);
    const executed = idOf(span("idempotency.execute"));
    reset();
    await run(latchkey);
    expect(span("idempotency.reserve").attributes["idempotency.answered_from"]).toBe("cache");
    expect(linksOf(span("idempotency.reserve"))).toEqual([executed]);
  });

  it("a duplicate to the execution that it joins", async () => {
    const { latchkey, span, spans } = traced({ onInFlight: "wait" });
    let finish: (value: string) => void = () => {};
    const first = run(latchkey, () => new Promise((resolve) => (finish = resolve)));
    await new Promise((resolve) => setImmediate(resolve));
    const second = run(latchkey);
    await new Promise((resolve) => setImmediate(resolve));
    finish("done");
    await Promise.all([first, second]);
    const joined = spans("idempotency.reserve").find(({ links }) => links.length > 0);
    expect(joined?.attributes).toMatchObject({
      "idempotency.outcome": "replay",
      "idempotency.answered_from": "flight",
    });
    expect(linksOf(joined as never)).toEqual([idOf(span("idempotency.execute"))]);
  });

  it("a retry to the attempt that failed, and a takeover to the one that took too long", async () => {
    const clock = manualClock();
    const { latchkey, span, reset } = traced({
      runtime: clock,
      store: memoryStore({ clock: clock.now }),
      onCrash: "retry",
      executionTimeoutMs: 100,
    });
    await run(latchkey, () => Promise.reject(new Error("no"))).catch(() => {});
    const failed = idOf(span("idempotency.execute"));
    reset();
    run(latchkey, () => new Promise(() => {})).catch(() => {});
    await clock.advance(200);
    const slow = span("idempotency.execute");
    expect(slow.attributes["idempotency.attempt"]).toBe(2);
    expect(linksOf(slow)).toEqual([failed]);
    reset();
    await clock.advance(20_000);
    await run(latchkey);
    expect(span("idempotency.reserve").attributes["idempotency.outcome"]).toBe("takeover");
    expect(linksOf(span("idempotency.execute"))).toEqual([idOf(slow)]);
  });

  it("a worker's execution to the request that was accepted", async () => {
    const { latchkey, within, span, reset } = traced({
      store: transactionalStore(),
      onInFlight: "accept",
      statusPath: "/status",
    });
    const protect = idempotent(latchkey)(() => Response.json({ ok: true }));
    const headers = { "idempotency-key": "k", "content-type": "application/json" };
    await within("server", () =>
      protect(new Request("http://x/charges", { method: "POST", headers, body: "{}" })),
    );
    const accepted = idOf(span("server"));
    reset();
    const worker = completer(latchkey, {
      dispatch: ({ method, target, headers, body }) =>
        protect(
          new Request(`http://x${target}`, {
            method,
            headers: headers.map(([name, value]): [string, string] => [name, value]),
            body: Buffer.from(body),
          }),
        ),
    });
    expect(await worker.runOnce()).toMatchObject({ dispatched: 1 });
    expect(linksOf(span("idempotency.execute"))).toEqual([accepted]);
  });

  it("a request of a trace that is not recorded costs no span", async () => {
    const asked: string[] = [];
    const everything: Sampler = {
      shouldSample(_context, _traceId, name) {
        asked.push(name);
        return { decision: SamplingDecision.RECORD_AND_SAMPLED };
      },
    };
    const { latchkey, within } = traced({}, everything);
    const unrecorded = recordSpans(new AlwaysOffSampler());
    await unrecorded.within("server", () => run(latchkey));
    expect(asked).toEqual([]);
    await within("server", () => run(latchkey));
    expect(asked).toEqual(["server", "idempotency.reserve"]);
  });

  it("what is not recorded is not pointed to, and not kept", async () => {
    const { latchkey, spans } = traced({}, new AlwaysOffSampler());
    await run(latchkey);
    expect(spans()).toEqual([]);
    const { record } = await latchkey.store.read({ scope: "acme", key: "key-1" });
    expect(record?.state === "completed" && record.response.trace).toBe(undefined);
  });
});

describe("phases and messages", () => {
  it("each phase is a span below execute, in which its own work is traced", async () => {
    const { latchkey, span, spans, reset } = sqlite();
    const seen: (string | undefined)[] = [];
    const flow = (fail: boolean) => async (op: Operation) => {
      await op.atomic("booked", () => {
        seen.push(activeSpanId());
        return 1;
      });
      await op.effect("charged", () => {
        if (fail) throw new Error("declined");
        return 2;
      });
      return 3;
    };
    await run(latchkey, flow(true)).catch(() => {});
    const [booked, charged] = [span("idempotency.phase booked"), span("idempotency.phase charged")];
    expect(booked.attributes).toEqual({
      "idempotency.phase.kind": "atomic",
      "idempotency.phase.outcome": "done",
    });
    expect(seen).toEqual([idOf(booked)]);
    expect(charged.attributes).toEqual({
      "idempotency.phase.kind": "effect",
      "idempotency.phase.outcome": "failed",
    });
    expect(charged.status.code).toBe(SpanStatusCode.ERROR);
    for (const one of spans().filter(({ name }) => name.startsWith("idempotency.phase"))) {
      expect(parentOf(one)).toBe(idOf(span("idempotency.execute")));
    }
    reset();
    await run(latchkey, flow(false));
    expect(span("idempotency.phase booked").attributes["idempotency.phase.outcome"]).toBe("skipped");
    expect(span("idempotency.phase charged").attributes["idempotency.phase.outcome"]).toBe("done");
  });

  it("an answer that commits with its phase keeps its trace", async () => {
    const { latchkey, span } = sqlite();
    const protect = idempotent(latchkey)(async () => {
      const op = currentOperation();
      await op.atomic("answered", (tx) => op.respond(tx, { status: 201, body: { ok: true } }));
      return new Response();
    });
    const send = () =>
      protect(new Request("http://x/", { method: "POST", headers: { "idempotency-key": "k" } }));
    expect((await send()).status).toBe(201);
    const { record } = await latchkey.store.read({ scope: "single", key: "k" });
    expect(record?.state === "completed" && record.response.trace).toBe(
      traceparentOf(span("idempotency.execute")),
    );
  });

  it("a message is delivered in the trace of the phase that enqueued it, and hands its own on", async () => {
    const { latchkey, span, spans, reset } = sqlite();
    await run(latchkey, (op) =>
      op.atomic("booked", async (tx) => {
        await op.enqueue(tx, "receipt.send", { body: "body-s3cret" });
        return 1;
      }),
    );
    const booked = span("idempotency.phase booked");
    reset();
    const received: (string | null)[] = [];
    const failures = [new Error("error-s3cret"), undefined];
    const worker = relay(latchkey, {
      backoff: { baseMs: 1, capMs: 1 },
      deliver: async ({ traceparent }) => {
        received.push(traceparent);
        const failure = failures.shift();
        if (failure) throw failure;
      },
    });
    while (failures.length > 0) await worker.runOnce();
    const [failed, delivered] = spans("idempotency.deliver");
    expect(received).toEqual([traceparentOf(failed as never), traceparentOf(delivered as never)]);
    for (const [at, one] of spans("idempotency.deliver").entries()) {
      expect(parentOf(one)).toBe(idOf(booked));
      expect(one.spanContext().traceId).toBe(booked.spanContext().traceId);
      expect(one.kind).toBe(SpanKind.PRODUCER);
      expect(one.attributes).toEqual({
        "messaging.destination.name": "receipt.send",
        "idempotency.attempt": at + 1,
      });
      expect(JSON.stringify([one.status, one.events])).not.toContain("s3cret");
    }
    expect(failed?.status.code).toBe(SpanStatusCode.ERROR);
    expect(delivered?.status.code).toBe(SpanStatusCode.UNSET);
  });

  it("a relay without tracing hands on what the message carries", async () => {
    const { latchkey, span } = sqlite();
    await run(latchkey, (op) => op.atomic("booked", (tx) => op.enqueue(tx, "receipt.send", {})));
    for (const stop of stops.splice(0)) stop();
    const received: (string | null)[] = [];
    const worker = relay(latchkey, {
      deliver: async ({ traceparent }) => void received.push(traceparent),
    });
    await worker.runOnce();
    expect(received).toEqual([traceparentOf(span("idempotency.phase booked"))]);
  });
});

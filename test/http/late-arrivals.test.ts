import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { currentOperation } from "../../src/index.ts";
import { codeOf, hour, minute, service, uuidV7 } from "./late-service.ts";

describe("a request that is too old to be run", () => {
  it("gets the answer that is kept, for as long as it is", async () => {
    const api = service({ requestAgeMsMax: minute });
    const key = uuidV7(api.clock.now());
    const first = await (await api.post(key)).text();
    await api.clock.advance(30 * minute);
    const late = await api.post(key);
    expect(late.headers.get("idempotency-replayed")).toBe("true");
    expect(await late.text()).toBe(first);
    expect((await api.post(uuidV7(api.clock.now() - 2 * minute))).status).toBe(412);
    expect(api.ran).toHaveLength(1);
  });

  it("is not told to use a new key while its first sending is under way or in doubt", async () => {
    const api = service(
      { requestAgeMsMax: minute, executionTimeoutMs: 10 * hour },
      () => new Promise(() => {}),
    );
    const key = uuidV7(api.clock.now());
    void api.post(key);
    await api.clock.advance(2 * minute);
    expect(await codeOf(await api.post(key))).toBe("in-flight");
    api.latchkey.engine.close();
    await api.clock.advance(minute);
    expect(await codeOf(await api.post(key))).toBe("outcome-unknown");
    await api.latchkey.sweep();
    expect(await codeOf(await api.post(key))).toBe("outcome-unknown");
    expect(api.ran).toHaveLength(1);
  });

  it("is in doubt if it was half done: with a new key it would be charged twice", async () => {
    const charged = new Set<string>();
    const api = service({ requestAgeMsMax: minute }, async () => {
      await currentOperation().effect("charge", ({ idempotencyKey }) => void charged.add(idempotencyKey));
      return new Response("no mail could be sent", { status: 503 });
    });
    const key = uuidV7(api.clock.now());
    expect((await api.post(key)).status).toBe(503);
    await api.clock.advance(2 * minute);
    const late = await api.post(key);
    expect(late.status).toBe(409);
    expect(await codeOf(late)).toBe("outcome-unknown");
    expect([api.ran.length, charged.size]).toEqual([1, 1]);
  });

  it("is still accepted where a worker comes for it, though its crash means that it is tried again", async () => {
    const policy = { requestAgeMsMax: minute, onInFlight: "accept", onCrash: "retry" } as const;
    const api = service(policy, () => new Promise(() => {}));
    const key = uuidV7(api.clock.now());
    expect((await api.post(key)).status).toBe(202);
    void api.post(key, { "latchkey-claim": "true" });
    await api.clock.advance(10);
    api.latchkey.engine.close();
    await api.clock.advance(2 * minute);
    expect((await api.post(key)).status).toBe(202);
    // So it is once the sweeper has found it, and until the worker has come.
    await api.latchkey.sweep();
    expect((await api.post(key)).status).toBe(202);
    expect(api.ran).toHaveLength(1);
  });

  it("is as old as the wall clock says, on a machine that was suspended as well", async () => {
    const api = service({});
    const key = uuidV7(api.clock.now());
    await api.post(key);
    await api.clock.advance(45 * minute);
    api.suspend(30 * minute);
    await api.latchkey.reap();
    expect(await codeOf(await api.post(key))).toBe("late-arrival");
    expect(api.ran).toHaveLength(1);
  });

  it("is found, and told of, by the digest of its key where keys are stored as such", async () => {
    const api = service({ requestAgeMsMax: minute, hashKeys: randomBytes(32) });
    const key = uuidV7(api.clock.now());
    await api.post(key);
    await api.clock.advance(2 * minute);
    const told: string[] = [];
    api.latchkey.subscribe((event) => told.push(JSON.stringify(event)));
    expect((await api.post(key)).headers.get("idempotency-replayed")).toBe("true");
    expect(told.filter((event) => event.includes('"replay"'))).toHaveLength(1);
    expect(told.join()).not.toContain(key);
  });

  it("is refused with another body as it is while it is young", async () => {
    const api = service({ requestAgeMsMax: minute });
    const key = uuidV7(api.clock.now());
    await api.post(key);
    await api.clock.advance(2 * minute);
    expect(await codeOf(await api.post(key, {}, '{"amount":2}'))).toBe("key-reused");
  });

  it("that failed when it was young is not run any more", async () => {
    const api = service({ requestAgeMsMax: minute }, () => new Response(null, { status: 503 }));
    const key = uuidV7(api.clock.now());
    await api.post(key);
    await api.post(key);
    await api.clock.advance(2 * minute);
    expect((await api.post(key)).status).toBe(412);
    expect(api.ran).toHaveLength(2);
  });

  it("is not run for whoever poses as a worker", async () => {
    const api = service({ requestAgeMsMax: minute }, () => new Response(null, { status: 503 }));
    const key = uuidV7(api.clock.now());
    await api.post(key);
    await api.clock.advance(2 * minute);
    expect((await api.post(key, { "latchkey-claim": "true" })).status).toBe(412);
    const unheardOf = uuidV7(api.clock.now() - hour);
    expect((await api.post(unheardOf, { "latchkey-claim": "true" })).status).toBe(412);
    expect(api.ran).toHaveLength(1);
  });

  it("is not run while the store is down, even where others are", async () => {
    const api = service({ onStoreDown: "open" });
    api.stopStore();
    expect((await api.post(uuidV7(api.clock.now() - 2 * hour))).status).toBe(503);
    expect(api.ran).toEqual([]);
  });

  it("cannot be made young by an answer that is kept for less than the route says", async () => {
    const api = service({}, () => {
      currentOperation().retainFor(1000);
      return Response.json({}, { status: 201 });
    });
    const key = uuidV7(api.clock.now());
    await api.post(key);
    for (let elapsed = 0; elapsed < 2 * hour; elapsed += 5 * minute) {
      await api.clock.advance(5 * minute);
      await api.latchkey.reap();
      await api.post(key);
    }
    expect(api.ran).toHaveLength(1);
  });
});

describe("an operation outside HTTP that is too old", () => {
  const run = (api: ReturnType<typeof service>, key: string, sentAt?: number) =>
    api.latchkey.run({ tenant: "acme", key, ...(sentAt === undefined ? {} : { sentAt }) }, () => {
      api.ran.push(api.clock.now());
      return api.ran.length;
    });

  it("is told by its message's time, or by its key", async () => {
    const api = service({});
    const { clock } = api;
    const key = uuidV7(clock.now());
    const sentAt = clock.now();
    expect(await run(api, "message-1", sentAt)).toBe(1);
    expect(await run(api, key)).toBe(2);
    await clock.advance(65 * minute);
    expect(await run(api, "message-1", sentAt)).toBe(1);
    await clock.advance(hour);
    await api.latchkey.reap();
    await expect(run(api, "message-1", sentAt)).rejects.toMatchObject({ code: "late-arrival" });
    await expect(run(api, key)).rejects.toMatchObject({ code: "late-arrival" });
    expect(api.ran).toHaveLength(2);
  });

  it("is as old as the wall clock says, on a machine that was suspended as well", async () => {
    const api = service({});
    const sentAt = api.clock.now();
    await run(api, "message-1", sentAt);
    await api.clock.advance(45 * minute);
    api.suspend(30 * minute);
    await api.latchkey.reap();
    await expect(run(api, "message-1", sentAt)).rejects.toMatchObject({ code: "late-arrival" });
    expect(api.ran).toHaveLength(1);
  });

  it("has to say when it was asked for", async () => {
    const api = service({});
    await expect(run(api, "message-1")).rejects.toMatchObject({ code: "request-time-invalid" });
    for (const none of [Number.NaN, "2020-01-01T00:00:00Z", new Date(0)]) {
      const asked = run(api, "m", none as number);
      await expect(asked).rejects.toMatchObject({ code: "request-time-invalid" });
    }
    await expect(run(api, "m", api.clock.now() + hour)).rejects.toMatchObject({
      code: "request-time-invalid",
    });
    expect(api.ran).toEqual([]);
  });
});

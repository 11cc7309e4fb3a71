import { describe, expect, it } from "vitest";
import { createLatchkey, keyRing, UnreadableError } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { completer } from "../../src/workers/workers.ts";
import { again, request } from "../support/reserve-request.ts";
import { firstKey, problemOf, ring, sealed, secondKey, service, storedAnswer, tampered } from "./support.ts";

const secret = "card 4111 1111 1111 1111";

describe("what is stored of an answer", () => {
  it("cannot be read in the store, and is replayed byte for byte", async () => {
    const store = memoryStore();
    const bytes = Uint8Array.from({ length: 1000 }, (_, index) => index);
    const api = service({ store, encryption: ring(), replayHeaders: ["x-note"] }, {}, () => {
      return new Response(bytes, { status: 207, headers: { "x-note": secret, "content-type": "x/y" } });
    });
    await api.post("k1");
    const stored = await storedAnswer(store, "k1");
    expect(stored.status).toBe(207);
    expect(JSON.stringify(stored)).not.toContain(secret);
    expect(Buffer.from(stored.body).includes(Buffer.from(bytes.subarray(0, 32)))).toBe(false);
    const replay = await api.post("k1");
    expect(replay.headers.get("idempotency-replayed")).toBe("true");
    expect([replay.status, replay.headers.get("x-note")]).toEqual([207, secret]);
    expect(new Uint8Array(await replay.arrayBuffer())).toEqual(bytes);
    expect(new Uint8Array(await (await api.status("k1")).arrayBuffer())).toEqual(bytes);
    expect(api.runs()).toBe(1);
  });

  it("is never sealed the same way twice", async () => {
    const store = memoryStore();
    const api = service({ store, encryption: ring() });
    await api.post("k1");
    const first = await storedAnswer(store, "k1");
    await api.latchkey.bust({ of: { tenant: "acme", key: "k1" }, by: "test" });
    await api.post("k1");
    expect(Buffer.from((await storedAnswer(store, "k1")).body).equals(Buffer.from(first.body))).toBe(false);
  });

  it("does not open in the place of another record's, of another tenant's, or with another status", async () => {
    const store = memoryStore();
    const writing = service({ store, encryption: ring() });
    for (const [key, tenant] of [
      ["mine", "acme"],
      ["other", "acme"],
      ["mine", "globex"],
    ] as const) {
      await writing.post(key, `${key} of ${tenant}`, tenant);
    }
    const opens = /sealed with the key "first" does not open/;
    const moves = [
      { move: () => storedAnswer(store, "other"), status: 503, errors: [expect.stringMatching(opens)] },
      {
        move: async () => ({ ...(await storedAnswer(store, "mine")), status: 200 }),
        status: 503,
        errors: [expect.stringMatching(opens)],
      },
      // It names a secret that this tenant does not have, as what was shredded does.
      { move: () => storedAnswer(store, "mine", "globex"), status: 409, errors: [] },
    ];
    for (const { move, status, errors } of moves) {
      const reading = service({ store: tampered(store, move), encryption: ring() });
      const answer = await reading.post("mine", "mine of acme");
      expect(answer.status).toBe(status);
      expect(await answer.text()).not.toContain("globex");
      expect(reading.runs()).toBe(0);
      expect(reading.storeErrors()).toEqual(errors);
    }
  });

  it("does not open in another tenant's place even where one key is for all", async () => {
    const store = memoryStore();
    const encryption = ring({ perTenant: false });
    await service({ store, encryption }).post("mine", "a", "acme");
    await service({ store, encryption }).post("mine", "a", "globex");
    const moved = tampered(store, () => storedAnswer(store, "mine", "globex"));
    const reading = service({ store: moved, encryption });
    expect((await reading.post("mine", "a")).status).toBe(503);
    expect(reading.runs()).toBe(0);
  });

  it("does not open with any bit of it flipped, and is never taken for anything else", async () => {
    const store = memoryStore();
    await service({ store, encryption: ring() }).post("k1");
    const { body } = await storedAnswer(store, "k1");
    let flipped = 0;
    const damaged = tampered(store, (response) => {
      if (response.kind !== "full") return response;
      const bytes = Uint8Array.from(response.body);
      bytes[flipped >> 3] = (bytes[flipped >> 3] ?? 0) ^ (1 << (flipped & 7));
      return { ...response, body: bytes };
    });
    const { record } = await store.read({ scope: "acme", key: "k1" });
    const asked = request({ scope: "acme", key: "k1", fingerprint: record?.fingerprint ?? "" });
    const reading = sealed(damaged);
    const answers = new Map<string, number[]>();
    const note = (answer: string) => answers.set(answer, [...(answers.get(answer) ?? []), flipped]);
    for (flipped = 0; flipped < body.byteLength * 8; flipped += 1) {
      await reading.reserve(again(asked)).then(
        (answer) => note(answer.kind === "replay" ? `${answer.response.kind} answer` : answer.kind),
        (error) => note(error instanceof UnreadableError ? "unreadable" : String(error)),
      );
    }
    expect([...answers.keys()].sort()).toEqual(["omitted answer", "unreadable"]);
    // What is not authenticated says which keys to look for. With another tag it names a secret that is gone, and the
    // answer counts as one that was not kept; everything behind that is authenticated.
    const headBits = 8 * (1 + 1 + firstKey.id.length + 1 + 8);
    expect(Math.max(...(answers.get("omitted answer") ?? []))).toBeLessThan(headBits);
    expect(answers.get("unreadable")?.length).toBeGreaterThanOrEqual(body.byteLength * 8 - headBits);
  });

  it("is not kept if it does not fit into the store with its seal", async () => {
    const inner = memoryStore();
    const store = Object.assign(Object.create(inner), {
      capabilities: { ...inner.capabilities, responseBytesMax: 20_000 },
      notes: inner.notes,
    });
    for (const verb of ["reserve", "settle", "read"] as const) store[verb] = inner[verb].bind(inner);
    const api = service(
      { store, encryption: ring(), responseBytesMax: 10_000, replayHeaders: ["x-long"] },
      {},
      () => {
        return new Response("x".repeat(10_000), { headers: { "x-long": "y".repeat(12_000) } });
      },
    );
    expect(api.latchkey.store.capabilities.responseBytesMax).toBeLessThan(20_000);
    expect((await api.post("k1")).status).toBe(200);
    const retry = await api.post("k1");
    expect((await problemOf(retry)).code).toBe("response-not-stored");
    expect(api.runs()).toBe(1);
  });
});

describe("what was stored before encryption", () => {
  it("still opens, and is refused where refusePlain is set", async () => {
    const store = memoryStore();
    const first = await service({ store }).post("k1");
    const later = service({ store, encryption: ring() });
    expect(await (await later.post("k1")).text()).toBe(await first.text());
    const strict = service({ store, encryption: ring({ refusePlain: true }) });
    expect((await strict.post("k1")).status).toBe(503);
    expect(strict.storeErrors()).toEqual([expect.stringMatching(/refusePlain/)]);
    expect(later.runs() + strict.runs()).toBe(0);
  });

  it("and what was stored with one key for all opens when each tenant gets its own, and the other way round", async () => {
    const store = memoryStore();
    const shared = service({ store, encryption: ring({ perTenant: false }) });
    const own = service({ store, encryption: ring() });
    await shared.post("k1");
    await own.post("k2");
    expect((await own.post("k1")).status).toBe(201);
    expect((await shared.post("k2")).status).toBe(201);
    expect([shared.runs(), own.runs()]).toEqual([1, 1]);
  });
});

describe("a process that cannot open an answer", () => {
  it.each(["closed", "open"] as const)(
    "answers 503, names the key and executes nothing (onStoreDown: %s)",
    async (onStoreDown) => {
      const store = memoryStore();
      await service({ store, encryption: ring({}, [secondKey]) }).post("k1");
      const api = service({ store, encryption: ring(), onStoreDown });
      const answers = await Promise.all([api.post("k1"), api.post("k1"), api.post("k1")]);
      for (const answer of answers) {
        expect(answer.status).toBe(503);
        expect((await problemOf(answer)).code).toBe("store-unavailable");
      }
      expect(api.runs()).toBe(0);
      expect(api.storeErrors()[0]).toMatch(/sealed with the key "second"/);
      expect((await api.status("k1")).status).toBe(503);
    },
  );

  it("does not begin what it could not store", async () => {
    const store = memoryStore();
    await service({ store, encryption: ring({}, [secondKey]) }).post("k1");
    const api = service({ store, encryption: ring() });
    expect((await api.post("k2")).status).toBe(503);
    expect(api.runs()).toBe(0);
    expect((await store.read({ scope: "acme", key: "k2" })).record).toBeUndefined();
  });

  it("because it has no keys at all, does not send what is sealed either", async () => {
    const store = memoryStore();
    await service({ store, encryption: ring() }).post("k1");
    const api = service({ store });
    expect((await api.post("k1")).status).toBe(503);
    expect((await api.status("k1")).status).toBe(503);
    await expect(
      api.latchkey.run({ tenant: "acme", key: "k1", input: null }, () => "ran"),
    ).rejects.toMatchObject({ code: expect.stringMatching(/key-reused|store-unavailable/) });
    expect(api.runs()).toBe(0);
    expect(api.storeErrors()[0]).toMatch(/pass the same encryption/);
  });
});

describe("a request that is kept for a worker", () => {
  const accepting = { onInFlight: "accept", keepRequestHeaders: ["x-tenant"] } as const;

  it("cannot be read in the store, and is sent as it came", async () => {
    const store = memoryStore();
    const api = service({ store, encryption: ring() }, accepting);
    const accepted = await api.post("k1", secret);
    expect(accepted.status).toBe(202);
    const { claimed } = await store.claimResumable({
      limit: 1,
      attemptsMax: 9,
      backoff: { baseMs: 0, capMs: 0 },
    });
    const kept = claimed[0]?.request;
    expect(kept).toMatchObject({ method: "POST", tenant: "acme", target: "sealed" });
    expect(JSON.stringify(kept) + Buffer.from(kept?.body ?? []).toString("latin1")).not.toContain("4111");

    const worker = completer(api.latchkey, {
      async dispatch({ method, target, headers, body }) {
        const sent = headers.map(([name, value]): [string, string] => [name, value]);
        await api.handle(
          new Request(`http://x${target}`, { method, headers: sent, body: Buffer.from(body) }),
        );
      },
    });
    expect(await worker.runOnce()).toMatchObject({ dispatched: 1, failed: 0 });
    expect(await (await api.status("k1")).json()).toEqual({ said: secret });
  });

  it("keeps nobody else from being executed if it cannot be opened", async () => {
    const store = memoryStore();
    // With one key for all, whose ring is another: the tenant's secret would not open before.
    const options = { perTenant: false };
    await service({ store, encryption: ring(options, [secondKey]) }, accepting).post("bad");
    const api = service({ store, encryption: ring(options) }, accepting);
    await api.post("good");
    const sent: string[] = [];
    const worker = completer(api.latchkey, { dispatch: async ({ key }) => void sent.push(key) });
    expect(await worker.runOnce()).toMatchObject({ dispatched: 1 });
    expect(sent).toEqual(["good"]);
    expect(api.storeErrors()).toEqual([expect.stringMatching(/sealed with the key "second"/)]);
  });

  it("is answered with 408 in the clear when nobody executed it, and that is sealed as well", async () => {
    let now = 1_000_000;
    const store = memoryStore({ clock: () => now });
    const api = service(
      { store, encryption: ring({ refusePlain: true }) },
      { ...accepting, retentionMs: 1000 },
    );
    await api.post("k1");
    now += 1001;
    expect(await api.latchkey.sweep()).toMatchObject({ unclaimed: 1 });
    expect((await storedAnswer(store, "k1")).headers[0]?.[0]).toBe(":sealed");
    expect((await api.status("k1")).status).toBe(408);
  });
});

describe("a key ring", () => {
  it("refuses what is not a key, and says how to make one", () => {
    for (const secretText of ["short", "", Buffer.alloc(31), "g".repeat(64), undefined]) {
      expect(() => keyRing([{ id: "a", secret: secretText as string }])).toThrow(/32 random bytes/);
    }
    expect(() => keyRing([])).toThrow(/at least one key/);
    expect(() => keyRing([{ id: "no spaces", secret: Buffer.alloc(32) }])).toThrow(/the id of a key/);
    expect(() => keyRing([firstKey, { id: "first", secret: Buffer.alloc(32, 9) }])).toThrow(/two keys/);
    expect(() => keyRing([firstKey], { perTenant: false, tenantSecrets: {} as never })).toThrow(/leave one/);
    expect(() =>
      createLatchkey({ store: memoryStore(), tenant: "single", encryption: [firstKey] as never }),
    ).toThrow(/keyRing/);
  });

  it("takes a secret as bytes, as hexadecimal digits and as base64url", async () => {
    const bytes = Buffer.from(Array.from({ length: 32 }, (_, index) => index * 7));
    const store = memoryStore();
    await service({ store, encryption: keyRing([{ id: "a", secret: bytes }]) }).post("k1");
    for (const text of [bytes.toString("hex"), bytes.toString("base64url"), bytes.toString("base64")]) {
      const api = service({ store, encryption: keyRing([{ id: "a", secret: text }]) });
      expect((await api.post("k1")).status).toBe(201);
    }
  });

  it("does not retire the key that seals, nor one that it does not have", () => {
    const keys = ring();
    expect(() => keys.retire("first")).toThrow(/rotate to another/);
    expect(() => keys.retire("nobody")).toThrow(/no key "nobody"/);
  });
});

import { randomBytes } from "node:crypto";
import { describe, expect, it } from "vitest";
import { Administration, type RecordDetailView, type ResponseView } from "../../src/admin/admin.ts";
import { createLatchkey, type KeyRing, keyRing, type Latchkey } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { sqliteBusiness } from "../support/business.ts";
import { atTheEnd, eve, served } from "./admin-client.ts";

const of = { tenant: "acme", key: "a" };

/** What is shown of a record that was completed with this body. */
async function shownWith(
  body: Uint8Array | string,
  options: { readonly responses?: "shown" | "hidden" } = {},
): Promise<ResponseView | null | undefined> {
  const latchkey = createLatchkey({ store: memoryStore(), tenant: "single", onServerError: "reconcile" });
  await unknown(latchkey);
  const response = { status: 201, headers: { "content-type": "text/x" }, body };
  await latchkey.resolve({ of, by: "ada", verdict: { kind: "completed", response } });
  return (await new Administration(latchkey, options).record(of))?.response;
}

function unknown(latchkey: Latchkey): Promise<unknown> {
  const fail = () => {
    throw new Error("the provider did not answer");
  };
  return latchkey.run({ ...of, input: 1 }, fail).catch(() => {});
}

describe("the answer of a record", () => {
  it("is shown as text if it is text", async () => {
    expect(await shownWith("grüße 💶")).toEqual({
      kind: "full",
      status: 201,
      headers: [["content-type", "text/x"]],
      body: "grüße 💶",
      encoding: "utf8",
      bodyBytes: 12,
      isCut: false,
    });
    expect(await shownWith("")).toMatchObject({ kind: "full", body: "", encoding: "utf8", bodyBytes: 0 });
    // What begins with a byte order mark is shown with it.
    expect(await shownWith("\ufeffx")).toMatchObject({ body: "\ufeffx" });
  });

  it("is shown in base64 if it is not", async () => {
    const bytes = Buffer.from([0xff, 0xd8, 0x00, 0x80]);
    expect(await shownWith(bytes)).toMatchObject({ encoding: "base64", body: bytes.toString("base64") });
  });

  it("is cut after 64 KB, and not within a character", async () => {
    expect(await shownWith("x".repeat(65_536))).toMatchObject({ isCut: false, bodyBytes: 65_536 });
    const long = await shownWith("x".repeat(65_535) + "é".repeat(10));
    expect(long).toMatchObject({
      encoding: "utf8",
      isCut: true,
      bodyBytes: 65_555,
      body: "x".repeat(65_535),
    });
    const bytes = await shownWith(Buffer.alloc(70_000, 0xff));
    expect(bytes).toMatchObject({ encoding: "base64", isCut: true, bodyBytes: 70_000 });
    expect(Buffer.from((bytes as { body: string }).body, "base64")).toHaveLength(65_536);
  });

  it("is not shown where it is to be hidden", async () => {
    expect(await shownWith("secret", { responses: "hidden" })).toEqual({
      kind: "omitted",
      status: 201,
      bodyBytes: 6,
      because: "hidden",
    });
  });
});

describe("what an operation has left", () => {
  async function operation(options: { readonly encryption?: KeyRing } = {}) {
    const business = await sqliteBusiness();
    atTheEnd(() => business.close());
    const latchkey = createLatchkey({ store: business.store, tenant: "single", ...options });
    await latchkey.run(of, async (op) => {
      await op.atomic("booked", async (tx) => {
        await op.enqueue(tx, "receipt.send", { secret: "of a message" });
        return { secret: "of a phase" };
      });
      await op.effect("charged", async () => ({ secret: "of a call" }));
      return { secret: "of an answer" };
    });
    const outbox = business.store.outbox;
    const [message] = (await outbox?.claim({ owner: "o", limit: 1, leaseMs: 60_000 })) ?? [];
    await outbox?.settle("o", [{ kind: "dead", id: message?.id ?? "", error: "nobody reads this" }]);
    return { latchkey, store: business.store };
  }
  const seen = async (administration: Administration) => ({
    record: await administration.record(of),
    letters: (await administration.deadLetters()).deadLetters,
  });
  const results = (record: RecordDetailView | undefined) =>
    record?.phases.map(({ name, result }) => [name, result]);

  it("is shown, phase by phase", async () => {
    const { latchkey } = await operation();
    const { record, letters } = await seen(new Administration(latchkey));
    expect(results(record)).toEqual([
      ["booked", '{"secret":"of a phase"}'],
      ["charged", '{"secret":"of a call"}'],
    ]);
    expect(
      record?.phases.map(({ kind, state, idempotencyKey }) => [kind, state, idempotencyKey.slice(0, 3)]),
    ).toEqual([
      ["atomic", "done", "lk_"],
      ["effect", "done", "lk_"],
    ]);
    expect(letters).toMatchObject([{ payload: '{"secret":"of a message"}' }]);
  });

  it("is hidden with the answers", async () => {
    const { latchkey } = await operation();
    const view = await seen(new Administration(latchkey, { responses: "hidden" }));
    expect(results(view.record)).toEqual([
      ["booked", null],
      ["charged", null],
    ]);
    expect(view.letters).toMatchObject([{ payload: null, error: "nobody reads this" }]);
    expect(JSON.stringify(view)).not.toContain("secret");
  });

  it("is hidden from operators where it is encrypted, unless somebody says otherwise", async () => {
    const { latchkey } = await operation({ encryption: keyRing([{ id: "k1", secret: randomBytes(32) }]) });
    const shownBy = async (options: { readonly responses?: "shown" }) => {
      const admin = await served(latchkey, options);
      const asked = ["/api/record?scope=acme&key=a", "/api/dead-letters"].map((path) =>
        admin.ask(path, { token: eve.token }),
      );
      return (await Promise.all((await Promise.all(asked)).map((answer) => answer.text()))).join("\n");
    };
    const hidden = await shownBy({});
    expect(hidden).toContain('"because":"hidden"');
    expect(hidden).toContain("nobody reads this");
    expect(hidden).not.toContain("secret");
    const shown = await shownBy({ responses: "shown" });
    for (const what of ["a phase", "a call", "an answer", "a message"]) expect(shown).toContain(`of ${what}`);
  });

  it("is sealed to a process without the keys, and open to one that has them", async () => {
    const { latchkey, store } = await operation({
      encryption: keyRing([{ id: "k1", secret: randomBytes(32) }]),
    });
    const open = await seen(new Administration(latchkey));
    expect(results(open.record)?.[0]).toEqual(["booked", '{"secret":"of a phase"}']);
    expect(open.record?.response).toMatchObject({ kind: "full", body: '{"secret":"of an answer"}' });
    expect(open.letters).toMatchObject([{ payload: '{"secret":"of a message"}' }]);
    const without = await seen(new Administration(createLatchkey({ store, tenant: "single" })));
    expect(without.record?.response).toEqual({
      kind: "omitted",
      status: 200,
      bodyBytes: null,
      because: "sealed",
    });
    expect(results(without.record)).toEqual([
      ["booked", null],
      ["charged", null],
    ]);
    expect(without.letters).toMatchObject([{ payload: null }]);
  });
});

describe("finding a record", () => {
  it("works with the name of a tenant, and with what the list calls it", async () => {
    const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
    await latchkey.run({ tenant: "acme & söhne", key: "a" }, () => 1);
    await latchkey.run({ tenant: "other", key: "a" }, () => 1);
    const administration = new Administration(latchkey);
    const { records } = await administration.records({ tenant: "acme & söhne" });
    expect(records.map(({ tenant }) => tenant)).toEqual(["acme%20&%20s%C3%B6hne"]);
    expect((await administration.records({ tenant: records[0]?.tenant })).records).toEqual(records);
    expect((await administration.records({ tenant: "acme" })).records).toEqual([]);
  });

  it("works by the client's key where keys are stored hashed", async () => {
    const options = { tenant: "single", hashKeys: randomBytes(32) } as const;
    const latchkey = createLatchkey({ store: memoryStore(), ...options });
    await latchkey.run({ tenant: "acme", key: "a" }, () => 1);
    const administration = new Administration(latchkey);
    const { records } = await administration.records({ tenant: "acme", key: "a" });
    expect(records.map(({ key }) => key.slice(0, 3))).toEqual(["h1_"]);
    const key = records[0]?.key ?? "";
    expect((await administration.records({ key })).records).toHaveLength(1);
    // An empty list would be taken for a key that never came.
    await expect(administration.records({ key: "a" })).rejects.toThrow(/name its tenant, too/);
    const admin = await served(latchkey);
    const refused = await admin.ask("/api/records?key=a");
    expect([refused.status, await refused.text()]).toEqual([
      400,
      expect.stringMatching(/name its tenant, too/),
    ]);
    expect((await administration.record(of))?.key).toBe(key);
    expect((await administration.record({ scope: "acme", key }))?.key).toBe(key);
    expect(await administration.bust({ scope: "acme", key, attempt: 1, reason: "wrong" }, "ada")).toEqual({
      kind: "busted",
    });
    expect((await administration.record(of))?.timeline.map(({ to }) => to)).toContain("expired");
  });
});

it("a record is shown, and can be settled, also while nobody can tell how often it came", async () => {
  const store = memoryStore();
  const latchkey = createLatchkey({ store, tenant: "single", onServerError: "reconcile" });
  await unknown(latchkey);
  store.notes.read = async () => {
    throw new Error("the notes cannot be read");
  };
  const shown = await new Administration(latchkey).record(of);
  expect(shown).toMatchObject({ state: "unknown", duplicates: null });
  expect(shown?.timeline.at(-1)?.to).toBe("unknown");
});

it("how many run is counted up to a thousand, also where pages are short", async () => {
  const store = memoryStore();
  const latchkey = createLatchkey({ store, tenant: "single" });
  const reserve = (n: number) => {
    const lease = { scope: "acme", key: `key-${n}`, fingerprint: "v1:x", owner: `o-${n}`, leaseMs: 60_000 };
    const rest = { retentionMs: 60_000, onCrash: "reconcile", reconcileAfterMs: 0, mode: "execute" } as const;
    return store.reserve({ ...lease, ...rest, route: undefined, request: undefined });
  };
  for (let n = 0; n < 12; n += 1) await reserve(n);
  const { list } = store;
  Object.assign(store, {
    list: (query: Parameters<typeof list>[0]) => list.call(store, { ...query, limit: 5 }),
  });
  const administration = new Administration(latchkey);
  expect((await administration.stats()).running).toBe(12);
  Object.assign(store, { list });
  for (let n = 12; n < 1_010; n += 1) await reserve(n);
  expect((await administration.stats()).running).toBe(1_000);
});

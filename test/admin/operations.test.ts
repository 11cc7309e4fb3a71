import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type {
  AuditPageView,
  DeadLetterPageView,
  ProblemView,
  RecordDetailView,
  RecordPageView,
  StatsView,
} from "../../src/admin/admin.ts";
import { openApi } from "../../src/admin/openapi.ts";
import { createLatchkey, type Latchkey } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { relay } from "../../src/workers/relay.ts";
import { NotDeliverableError } from "../../src/workers/workers.ts";
import { type Business, businesses } from "../support/business.ts";
import { type AdminClient, served } from "./admin-client.ts";
import { complaints } from "./json-schema.ts";

const stores: readonly (readonly [string, () => Promise<Pick<Business, "store" | "close">>])[] = [
  ["memory", async () => ({ store: memoryStore(), close: async () => {} })],
  ...businesses,
];

describe.each(stores)("an operator, on %s", (name, open) => {
  let business: Pick<Business, "store" | "close">;
  let latchkey: Latchkey;
  let admin: AdminClient;
  beforeEach(async () => {
    business = await open();
    latchkey = createLatchkey({ store: business.store, tenant: "single", onServerError: "reconcile" });
    admin = await served(latchkey);
  });
  afterEach(async () => {
    await latchkey.close();
    await business.close();
  });

  const execute = (key: string, work: () => unknown = () => ({ key })) =>
    latchkey.run({ tenant: "acme", key, input: key }, work).catch((error: unknown) => error);
  const fail = () => {
    throw new Error("the provider did not answer");
  };
  const detail = (key: string) => admin.get<RecordDetailView>(`/api/record?scope=acme&key=${key}`);
  const trail = async (query = "") => (await admin.get<AuditPageView>(`/api/audit${query}`)).entries;

  it("sees what there is, page by page, and by what is asked for", async () => {
    for (const key of ["a", "b", "c", "d"]) await execute(key);
    await execute("e", fail);
    const seen: string[] = [];
    let next: string | null = "";
    while (next !== null) {
      const cursor: string = next === "" ? "" : `&cursor=${encodeURIComponent(next)}`;
      const page: RecordPageView = await admin.get(`/api/records?limit=2${cursor}`);
      expect(page.records.length).toBeLessThanOrEqual(2);
      seen.push(...page.records.map(({ key }) => key));
      next = page.next;
    }
    expect(seen.toSorted()).toEqual(["a", "b", "c", "d", "e"]);
    const keysOf = async (query: string) =>
      (await admin.get<RecordPageView>(`/api/records?${query}`)).records.map(({ key }) => key);
    expect(await keysOf("state=unknown")).toEqual(["e"]);
    expect(await keysOf("key=b")).toEqual(["b"]);
    expect(await keysOf("tenant=acme&key=b")).toEqual(["b"]);
    expect(await keysOf("tenant=other")).toEqual([]);
    expect(await keysOf("route=none")).toEqual([]);
    const { createdAt } = await detail("c");
    expect(await keysOf(`key=c&from=${createdAt}&to=${createdAt + 1}`)).toEqual(["c"]);
    expect(await keysOf(`key=c&from=${createdAt + 1}`)).toEqual([]);
    expect(await keysOf(`key=c&to=${createdAt}`)).toEqual([]);
  });

  it("settles an unknown outcome: the retry gets the answer, and the trail says who gave it", async () => {
    await execute("a", fail);
    const { attempt, state, reason } = await detail("a");
    expect([attempt, state]).toEqual([1, "unknown"]);
    expect(reason).not.toBe("");
    expect((await admin.get<StatsView>("/api/stats")).unknown.waiting).toBe(1);
    const verdict = { kind: "completed", response: { status: 200, body: { charged: true } } };
    const word = { scope: "acme", key: "a", attempt, verdict };
    const answer = await admin.post("/api/record/resolve", word);
    expect([answer.status, await answer.json()]).toEqual([
      200,
      { kind: "resolved", expiresAt: expect.any(Number) },
    ]);
    expect(await execute("a", fail)).toEqual({ charged: true });
    const { timeline, response } = await detail("a");
    expect(timeline.at(-1)).toMatchObject({ from: "unknown", to: "completed", by: "ada", attempt: 1 });
    expect(timeline.filter(({ to }) => to === "completed")).toHaveLength(1);
    expect(response).toMatchObject({ kind: "full", status: 200, body: '{"charged":true}', encoding: "utf8" });
    expect((await trail("?scope=acme&key=a"))[0]).toMatchObject({ by: "ada", to: "completed" });
    // Said twice, it changes nothing, and says so.
    const again = await admin.post("/api/record/resolve", word);
    expect([again.status, ((await again.json()) as ProblemView).code]).toEqual([409, "not-unknown"]);
  });

  it("says that nothing was executed, and the retry is executed", async () => {
    await execute("a", fail);
    const verdict = { kind: "not-executed", reason: "the provider has no such charge" };
    await admin.post("/api/record/resolve", { scope: "acme", key: "a", attempt: 1, verdict });
    expect(await execute("a")).toEqual({ key: "a" });
    const { timeline } = await detail("a");
    expect(timeline.map(({ to, by }) => [to, by === "ada"])).toContainEqual(["failed_retryable", true]);
    expect(timeline.map(({ at }) => at)).toEqual(timeline.map(({ at }) => at).toSorted((a, b) => a - b));
    expect(timeline[0]).toMatchObject({ from: "absent", to: "in_progress", attempt: 1, by: null });
    expect(timeline.at(-1)).toMatchObject({ to: "completed", attempt: 2, by: null });
  });

  it("cannot say a verdict that does not fit, nor about another attempt", async () => {
    await execute("a", fail);
    const verdict = { kind: "effect-done", result: 1 };
    const unfit = await admin.post("/api/record/resolve", { scope: "acme", key: "a", attempt: 1, verdict });
    expect([unfit.status, ((await unfit.json()) as ProblemView).code]).toEqual([400, "not-applicable"]);
    const later = { scope: "acme", key: "a", attempt: 2, verdict: { kind: "not-executed" } };
    expect((await admin.post("/api/record/resolve", later)).status).toBe(409);
    expect((await detail("a")).state).toBe("unknown");
  });

  it("takes an answer away: the next request is executed, and the trail says who did it and why", async () => {
    await execute("a");
    const word = { scope: "acme", key: "a", attempt: 1, reason: "a wrong price" };
    const answer = await admin.post("/api/record/bust", word);
    expect([answer.status, await answer.json()]).toEqual([200, { kind: "busted" }]);
    expect((await trail())[0]).toMatchObject({
      key: "a",
      from: "completed",
      to: "expired",
      by: "ada",
      reason: "a wrong price",
    });
    const codeOf = async (body: object) =>
      ((await (await admin.post("/api/record/bust", body)).json()) as ProblemView).code;
    expect(await codeOf(word)).toBe("nothing-to-bust");
    expect(await execute("a", () => "again")).toBe("again");
    expect((await detail("a")).attempt).toBe(2);
    expect(await codeOf(word)).toBe("another-attempt");
    expect(await execute("a", fail)).toBe("again");
    await execute("b", fail);
    expect(await codeOf({ ...word, key: "b" })).toBe("not-settled");
    const { timeline } = await detail("a");
    expect(timeline.map(({ from, to }) => [from, to])).toEqual(
      expect.arrayContaining([["completed", "expired"]]),
    );
    expect(timeline.at(-1)).toMatchObject({ to: "completed", attempt: 2 });
  });

  const requeues = async () => {
    await latchkey.run({ tenant: "acme", key: "a" }, (op) =>
      op.atomic("booked", async (tx) => {
        await op.enqueue(tx, "receipt.send", { ride: 1 });
        await op.enqueue(tx, "receipt.send", { ride: 2 });
        return 1;
      }),
    );
    let isDown = true;
    const delivered: unknown[] = [];
    const worker = relay(latchkey, {
      async deliver(message) {
        if (isDown) throw new NotDeliverableError("nobody reads this");
        delivered.push(message.payload);
      },
    });
    while ((await worker.runOnce()).dead > 0);
    const first = await admin.get<DeadLetterPageView>("/api/dead-letters?limit=1");
    expect(first.deadLetters).toMatchObject([
      { topic: "receipt.send", payload: '{"ride":1}', scope: "acme", error: "nobody reads this" },
    ]);
    const second = await admin.get<DeadLetterPageView>(`/api/dead-letters?limit=1&cursor=${first.next}`);
    expect(second.deadLetters).toMatchObject([{ payload: '{"ride":2}' }]);
    expect((await admin.get<StatsView>("/api/stats")).outbox).toMatchObject({ waiting: 0, dead: 2 });
    isDown = false;
    const ids = first.deadLetters.map(({ id }) => id);
    expect(await (await admin.post("/api/dead-letters/requeue", { ids })).json()).toEqual({ requeued: 1 });
    expect(await (await admin.post("/api/dead-letters/requeue", { ids })).json()).toEqual({ requeued: 0 });
    await worker.runOnce();
    expect(delivered).toEqual([{ ride: 1 }]);
    const [entry] = await trail();
    expect(entry).toMatchObject({ from: "dead_letter", to: "requeued", by: "ada" });
    expect((await admin.get<DeadLetterPageView>("/api/dead-letters")).deadLetters).toHaveLength(1);
  };
  // What has no transactions has no outbox either.
  if (name !== "memory") it("requeues a dead letter, and the trail says who did", requeues);

  it("turns the pages of the trail", async () => {
    for (const key of ["a", "b", "c"]) {
      await execute(key);
      await admin.post("/api/record/bust", { scope: "acme", key, attempt: 1, reason: key });
    }
    const first = await admin.get<AuditPageView>("/api/audit?limit=2");
    const second = await admin.get<AuditPageView>(`/api/audit?limit=2&cursor=${first.next}`);
    expect([...first.entries, ...second.entries].map(({ reason }) => reason)).toEqual(["c", "b", "a"]);
    expect(second.next).toBeNull();
  });

  it("is answered as the OpenAPI document says", async () => {
    await execute("a");
    await execute("a");
    await execute("b", fail);
    await admin.post("/api/record/resolve", {
      scope: "acme",
      key: "b",
      attempt: 1,
      verdict: { kind: "not-executed" },
    });
    for (const path of [
      "/api/session",
      "/api/records",
      "/api/record?scope=acme&key=a",
      "/api/record?scope=acme&key=b",
      "/api/stats",
      "/api/activity?window=15m",
      "/api/dead-letters",
      "/api/audit",
    ]) {
      const [route = ""] = path.split("?");
      const { get } = openApi.paths[route as "/api/stats"];
      const { schema } = (get.responses["200"] as { content: { "application/json": { schema: object } } })
        .content["application/json"];
      expect(complaints(await admin.get(path), schema as never, openApi, path)).toEqual([]);
    }
    const problem = await (await admin.ask("/api/records?x=1")).json();
    expect(complaints(problem, openApi.components.schemas.Problem, openApi)).toEqual([]);
  });
});

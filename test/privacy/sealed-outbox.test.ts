import { describe, expect, it } from "vitest";
import { currentOperation, keyRing } from "../../src/index.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { relay } from "../../src/workers/workers.ts";
import { useFolder } from "../stores/sqlite-support.ts";
import { firstKey, ring, secondKey, service } from "./support.ts";

const place = useFolder();

/** A process that enqueues one message for each request, in the partition that the body names. */
function enqueuing(encryption = ring({ perTenant: false })) {
  return service({ store: sqliteStore(place.path), encryption }, {}, async (request) => {
    const op = currentOperation();
    const partition = await request.text();
    const key = op.key;
    await op.atomic("enqueued", (tx) =>
      op.enqueue(tx, "receipts", { card: `4111 of ${key}` }, { partition }),
    );
    return new Response("done");
  });
}

function delivering(latchkey: ReturnType<typeof enqueuing>["latchkey"]) {
  const delivered: unknown[] = [];
  const worker = relay(latchkey, { deliver: async ({ payload }) => void delivered.push(payload) });
  return { delivered, round: () => worker.runOnce() };
}

describe("messages that are sealed", () => {
  it("cannot be read in the store, and are delivered as they were enqueued", async () => {
    const api = enqueuing(ring());
    await api.post("k1", "p1");
    const inner = sqliteStore(place.path);
    const [message] = (await inner.outbox?.claim({ owner: "thief", limit: 9, leaseMs: 1 })) ?? [];
    expect(message?.payload).toMatch(/^lks1\./);
    expect(() => JSON.parse(message?.payload ?? "")).toThrow();
    await inner.outbox?.settle("thief", []);
    const { delivered, round } = delivering(api.latchkey);
    await round();
    expect(delivered).toEqual([{ card: "4111 of k1" }]);
    await inner.close();
    await api.latchkey.close();
  });

  it("hold up none but their own partition if they cannot be opened, and wait for somebody who can", async () => {
    const other = enqueuing(keyRing([secondKey], { perTenant: false }));
    await other.post("bad", "p1");
    const encryption = ring({ perTenant: false });
    const api = enqueuing(encryption);
    await api.post("behind", "p1");
    await api.post("beside", "p2");
    const { delivered, round } = delivering(api.latchkey);
    expect(await round()).toMatchObject({ delivered: 1 });
    expect(delivered).toEqual([{ card: "4111 of beside" }]);
    expect(api.storeErrors()).toEqual([expect.stringMatching(/"second"/)]);
    // It counts as a delivery that failed, and waits for its time.
    expect(await round()).toMatchObject({ delivered: 0 });
    expect(await api.latchkey.outboxCounts()).toMatchObject({ waiting: 2, dead: 0 });
    for (const { latchkey } of [other, api]) await latchkey.close();
  });

  it("are dead at once if their tenant was shredded, and the next one of the partition is delivered", async () => {
    const api = enqueuing(ring({}, [firstKey]));
    await api.post("k1", "p1");
    await api.latchkey.shredTenant({ tenant: "acme", by: "ada" });
    await api.post("k2", "p1");
    const { delivered, round } = delivering(api.latchkey);
    await round();
    expect(delivered).toEqual([{ card: "4111 of k2" }]);
    const [dead] = await api.latchkey.deadLetters();
    expect(dead).toMatchObject({
      payload: '{"latchkey":"shredded"}',
      error: expect.stringMatching(/unreadable/),
    });
    expect(api.storeErrors()).toEqual([expect.stringMatching(/the message was made unreadable/)]);
    await api.latchkey.close();
  });

  it("are settled even if there was nothing else to deliver", async () => {
    const api = enqueuing(ring());
    await api.post("k1", "p1");
    await api.latchkey.shredTenant({ tenant: "acme", by: "ada" });
    const { round } = delivering(api.latchkey);
    expect(await round()).toEqual({ delivered: 0, failed: 0, dead: 0 });
    expect(await api.latchkey.outboxCounts()).toMatchObject({ waiting: 0, dead: 1 });
    await api.latchkey.close();
  });
});

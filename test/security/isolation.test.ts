import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, it } from "vitest";
import type { PolicyInput, RecordState, Store } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { until } from "../adapters/harness.ts";
import { codeOf, type Service, type ServiceOptions, seen, startService } from "./service.ts";

/** Every state of a record, and how the victim's request comes to it. */
const states: Readonly<Record<RecordState, Pick<ServiceOptions, "policy" | "handler">>> = {
  completed: {},
  pending: { policy: { onInFlight: "accept" } },
  in_progress: { handler: ({ tenant }, res) => tenant !== victim.tenant && own(tenant, res) },
  failed_retryable: {
    handler: ({ tenant }, res) => (tenant === victim.tenant ? res.status(503).end() : own(tenant, res)),
  },
  unknown: {
    policy: { onServerError: "reconcile" },
    handler: ({ tenant }, res) =>
      tenant === victim.tenant ? res.status(500).json({ secret }) : own(tenant, res),
  },
  expired: { policy: { retentionMs: 1 } satisfies PolicyInput },
};

const victim = { tenant: "victim" };
const attacker = { tenant: "attacker" };
const secret = "victim's answer";

function own(tenant: string, res: Parameters<NonNullable<ServiceOptions["handler"]>>[1]): void {
  res.status(201).json({ paidBy: tenant, ...(tenant === victim.tenant ? { secret } : {}) });
}

const stores: Readonly<Record<string, (folder: string) => Store>> = {
  memory: () => memoryStore(),
  SQLite: (folder) => sqliteStore(join(folder, "latchkey.db")),
};

describe.each(Object.entries(stores))("one key and two tenants on %s", (_name, open) => {
  const closing: (() => unknown)[] = [];
  afterEach(async () => {
    for (const close of closing.splice(0).reverse()) await close();
  });

  async function start(state: RecordState): Promise<Service> {
    const folder = mkdtempSync(join(tmpdir(), "latchkey-security-"));
    closing.push(() => rmSync(folder, { recursive: true, force: true }));
    const { policy, handler = ({ tenant }, res) => own(tenant, res) } = states[state];
    const service = await startService({
      store: open(folder) as Store,
      latchkey: { expiry: "soft" },
      handler,
      ...(policy === undefined ? {} : { policy }),
    });
    closing.push(() => service.close());
    return service;
  }

  /** Sends the victim's request, and waits until its record is as it should be. */
  async function prepare(service: Service, state: RecordState) {
    const read = async () => (await service.latchkey.store.read({ scope: "victim", key: "k" })).record;
    const sent = service.pay(victim, "k");
    if (state === "in_progress") {
      sent.catch(() => {});
      await until("the victim's handler to run", () => service.paid.length > 0);
    } else await sent;
    if (state === "expired") {
      let isOver = false;
      while (!isOver) {
        await new Promise((resolve) => setTimeout(resolve, 2));
        isOver = (await service.latchkey.reap()).expired > 0;
      }
    }
    expect((await read())?.state).toBe(state);
    return read;
  }

  it.each(Object.keys(states) as RecordState[])(
    "a key that is %s for one is new for the other, who learns nothing and changes nothing",
    async (state) => {
      const service = await start(state);
      const untouched = seen(await service.status(attacker, "k"));
      const read = await prepare(service, state);
      const before = await read();
      const executions = service.paid.length;

      // Before it has a request of its own, the attacker sees what it saw when there was none at all.
      expect(seen(await service.status(attacker, "k"))).toBe(untouched);

      const answer = await service.pay(attacker, "k");
      expect(answer.headers["idempotency-replayed"]).toBeUndefined();
      expect(answer.text).not.toContain("victim");
      if (state === "pending") expect(answer.status).toBe(202);
      else {
        expect(answer.status).toBe(201);
        expect(service.paid.slice(executions)).toEqual(["attacker k"]);
      }
      for (const more of [{ json: { amount: 11 } }, { headers: { "latchkey-claim": "true" } }]) {
        expect((await service.pay(attacker, "k", more)).text).not.toContain("victim");
      }
      expect((await service.status(attacker, "k")).text).not.toContain("victim");
      expect(await read()).toEqual(before);
    },
  );

  it("an answer that has expired is 410 to its owner alone, and gone for everybody when it is deleted", async () => {
    const service = await start("expired");
    const untouched = seen(await service.status(attacker, "k"));
    await prepare(service, "expired");
    const gone = await service.status(victim, "k");
    expect([gone.status, codeOf(gone)]).toEqual([410, "key-expired"]);
    expect(seen(await service.status(attacker, "k"))).toBe(untouched);
    expect(untouched).toMatch(/^404\n/);
  });

  it("what nobody ever sent, what another tenant sent and what is no key look the same but for their own name", async () => {
    const service = await start("completed");
    await service.pay(victim, "0190-aaaa");
    const answers = await Promise.all(
      ["0190-aaaa", "0190-aaab", "%", "a b", "x".repeat(300)].map(async (key) =>
        seen(await service.status(attacker, key)),
      ),
    );
    expect(new Set(answers).size).toBe(1);
  });

  it("a caller that is not authenticated learns nothing of any key", async () => {
    const service = await start("completed");
    await service.pay(victim, "k");
    const anonymous = { tenant: "" };
    const answers = [await service.status(anonymous, "k"), await service.status(anonymous, "absent")];
    expect(answers.map(({ status }) => status)).toEqual([401, 401]);
    expect(seen(answers[0] as never)).toBe(seen(answers[1] as never));
    expect((await service.pay(anonymous, "k")).status).toBe(401);
    expect(service.paid).toEqual(["victim k"]);
  });
});

describe("one key, one tenant and two sessions", () => {
  it.each(Object.keys(states) as RecordState[])(
    "a key that is %s in one session is another request in the other",
    async (state) => {
      const { policy, handler } = states[state];
      const service = await startService({
        store: memoryStore(),
        latchkey: { expiry: "soft" },
        ...(handler === undefined ? {} : { handler }),
        policy: { ...policy, binding: (req) => req.get("x-session") },
      });
      try {
        const owner = { ...victim, session: "s1" };
        const thief = { ...victim, session: "s2" };
        const untouched = seen(await service.status(thief, "k"));
        void service.pay(owner, "k").catch(() => {});
        const read = async () => (await service.latchkey.store.read({ scope: "victim", key: "k" })).record;
        let record = await read();
        while (record?.state !== state) {
          await new Promise((resolve) => setTimeout(resolve, 1));
          if (state === "expired") await service.latchkey.reap();
          record = await read();
        }
        const executions = service.paid.length;
        expect(seen(await service.status(thief, "k"))).toBe(untouched);
        expect(untouched).toMatch(/^404\n/);
        // Past its retention a key is free again, for any session of its tenant.
        if (state === "expired") return;
        for (const more of [{}, { json: { amount: 11 } }, { headers: { "latchkey-claim": "true" } }]) {
          expect(codeOf(await service.pay(thief, "k", more))).toBe("key-reused");
        }
        expect(service.paid).toHaveLength(executions);
        expect(await read()).toEqual(record);
      } finally {
        await service.close();
      }
    },
  );
});

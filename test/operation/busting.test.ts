import { describe, expect, it } from "vitest";
import { auditReasons } from "../../src/core/audit.ts";
import { ConfigError, createLatchkey, type LatchkeyEvent, type PolicyInput } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";

function service(policy: PolicyInput = {}) {
  const events: LatchkeyEvent[] = [];
  const latchkey = createLatchkey({
    store: memoryStore(),
    tenant: "single",
    cache: {},
    onEvent: (event) => events.push(event),
    ...policy,
  });
  let runs = 0;
  const run = (work: () => unknown = () => ++runs) =>
    latchkey.run({ tenant: "acme & co", key: "key", input: 1 }, work);
  return { latchkey, events, run, of: { tenant: "acme & co", key: "key" } };
}

describe("busting the answer of an operation", () => {
  it("lets the next call execute, and says who did it and why", async () => {
    const { latchkey, events, run, of } = service();
    expect([await run(), await run()]).toEqual([1, 1]);
    expect(await latchkey.bust({ of, by: "ada", reason: "a wrong price" })).toEqual({ kind: "busted" });
    expect([await run(), await run()]).toEqual([2, 2]);
    const [entry] = await latchkey.audit();
    expect(entry).toMatchObject({
      key: "key",
      from: "completed",
      to: "expired",
      by: "ada",
      reason: "a wrong price",
    });
    const told = events.filter((event) => event.type === "busted");
    expect(told).toEqual([
      { type: "busted", scope: entry?.scope, key: "key", by: "ada", reason: "a wrong price" },
    ]);
  });

  it("finds it by its scope as well, and needs no reason", async () => {
    const { latchkey, events, run } = service();
    await run();
    const reserved = events.find((event) => event.type === "reserved");
    const scope = reserved?.scope ?? "";
    expect(await latchkey.bust({ of: { scope, key: "key" }, by: "ada" })).toEqual({ kind: "busted" });
    expect((await latchkey.audit())[0]?.reason).toBe(auditReasons.busted);
  });

  it("twice, or of nothing, changes nothing and tells nobody", async () => {
    const { latchkey, events, run, of } = service();
    expect(await latchkey.bust({ of, by: "ada" })).toEqual({ kind: "nothing", state: "absent" });
    await run();
    await latchkey.bust({ of, by: "ada" });
    expect(await latchkey.bust({ of, by: "ada" })).toEqual({ kind: "nothing", state: "expired" });
    expect(events.filter((event) => event.type === "busted")).toHaveLength(1);
  });

  it("of an earlier attempt leaves the later one's", async () => {
    const { latchkey, run, of } = service();
    await run();
    await latchkey.bust({ of, by: "ada", attempt: 1 });
    expect(await run()).toBe(2);
    expect(await latchkey.bust({ of, by: "ada", attempt: 1 })).toEqual({
      kind: "another-attempt",
      attempt: 2,
    });
    expect(await run()).toBe(2);
  });

  it("is refused while it runs, and says what to do instead", async () => {
    const { latchkey, run, of } = service();
    let finish = () => {};
    const running = run(
      () =>
        new Promise<string>((resolve) => {
          finish = () => resolve("done");
        }),
    );
    const refused = await latchkey.bust({ of, by: "ada" });
    expect(refused).toMatchObject({ kind: "not-settled", state: "in_progress" });
    expect(refused).toHaveProperty("instead", expect.stringMatching(/wait for its outcome/));
    finish();
    expect(await running).toBe("done");
  });

  it("is refused while nobody knows it, with whom to tell", async () => {
    const { latchkey, run, of } = service({ onServerError: "reconcile" });
    await run(() => {
      throw new Error("the line went dead");
    }).catch(() => {});
    const refused = await latchkey.bust({ of, by: "ada" });
    expect(refused).toMatchObject({ kind: "not-settled", state: "unknown" });
    expect(refused).toHaveProperty("instead", expect.stringMatching(/latchkey\.resolve/));
  });

  it("needs to know who says so, and of what", async () => {
    const { latchkey, of } = service();
    await expect(latchkey.bust({ of, by: "" })).rejects.toThrow(ConfigError);
    await expect(latchkey.bust({ of, by: "  " })).rejects.toThrow(ConfigError);
    await expect(latchkey.bust({ of, by: "" })).rejects.toThrow("latchkey.bust needs to know who says so");
    await expect(latchkey.bust({ of: { tenant: "", key: "key" }, by: "ada" })).rejects.toThrow(
      "latchkey.bust needs a scope or a tenant",
    );
  });
});

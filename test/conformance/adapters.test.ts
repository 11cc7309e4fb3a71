import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type Report, type VerifyOptions, verify } from "../../src/conformance/conformance.ts";
import type { ProfileName } from "../../src/conformance/profiles.ts";
import { type Framework, json } from "../adapters/application.ts";
import { frameworks } from "../adapters/frameworks/all.ts";
import { type SiteOptions, Trial } from "../adapters/harness.ts";
import { gatewayFramework } from "../gateway/proxy/gateway-framework.ts";
import { type PythonUpstream, startPythonUpstream } from "../gateway/python-upstream.ts";

let upstream: PythonUpstream;
beforeAll(async () => {
  upstream = await startPythonUpstream();
});
afterAll(() => upstream.stop());

/** A payments API behind Latchkey with a ledger of its own, judged from outside. */
async function judge(
  framework: Framework,
  { profile = "ietf", ...latchkey }: SiteOptions["latchkey"] & { readonly profile?: ProfileName } = {},
  more: Partial<VerifyOptions> = {},
): Promise<Report> {
  const ledger: string[] = [];
  const trial = new Trial(framework);
  const handler: NonNullable<SiteOptions["handler"]> = async (visit) => {
    const { amount } = Object((await visit.body()) ?? {}) as { amount?: unknown };
    if (!Number.isInteger(amount)) return json(400, { error: "amount must be a whole number" });
    await delay(15);
    ledger.push(visit.header("idempotency-key")?.replaceAll('"', "") ?? "");
    return json(201, { id: randomUUID(), amount }, [["location", `/charges/${ledger.length}`]]);
  };
  try {
    const site = await trial.start({
      routes: { "/charges": handler, "/refunds": handler },
      latchkey: { tenant: (request) => request.header("authorization"), profile, ...latchkey },
    });
    return await verify({
      url: `${site.origin}/charges`,
      otherUrl: `${site.origin}/refunds`,
      headers: { authorization: "Bearer first-caller" },
      otherHeaders: { authorization: "Bearer other-caller" },
      body: (n) => ({ amount: n, currency: "usd" }),
      invalidBody: { amount: "much" },
      profile,
      pauseMs: 20,
      effects: (key) => ledger.filter((entry) => entry === key).length,
      ...more,
    });
  } finally {
    await trial.close();
  }
}

const notPassed = ({ checks }: Report) =>
  checks
    .filter(({ outcome }) => outcome !== "pass")
    .map(({ id, outcome, reason }) => ({ id, outcome, reason }));

describe.concurrent("our own adapters and the gateway pass every check", () => {
  it.each(
    [
      ...frameworks,
      gatewayFramework(
        () => upstream,
        () => ({ options: {}, by: "header:Authorization" }),
      ),
    ].map((framework) => [framework.name, framework] as const),
  )("%s", async (_, framework) => {
    expect(notPassed(await judge(framework))).toEqual([]);
  });
});

describe.concurrent("so do the policies that answer otherwise", () => {
  const [framework = expect.unreachable()] = frameworks;
  it.each([
    ["the profile stripe", { profile: "stripe" }],
    ["the profile acp", { profile: "acp" }],
    ["duplicates that wait", { onInFlight: "wait" }],
    ["keys within one path", { scope: "tenant+endpoint" }],
    ["UUIDs alone", { keyFormat: "uuid" }],
  ] as const)("%s", async (_, latchkey) => {
    expect(notPassed(await judge(framework, latchkey))).toEqual([]);
  });

  it("keys in double quotes alone", async () => {
    const report = await judge(framework, { keyFormat: "structured" }, { quoteKeys: true });
    expect(notPassed(report)).toEqual([]);
    await expect(judge(framework, { keyFormat: "structured" })).rejects.toThrow(/answered with 400/);
  });

  it("a misuse that is refused with another status is a warning", async () => {
    expect(notPassed(await judge(framework, { mismatchStatus: 409 }))).toEqual([
      {
        id: "misuse.other-body",
        outcome: "warn",
        reason: "refused with 409, where the Internet-Draft has 422",
      },
    ]);
  });

  it("keys that are not required are a failure by the draft, and none by Stripe's rules", async () => {
    const strict = await judge(framework, { required: false });
    expect(notPassed(strict)).toMatchObject([
      { id: "key-required.missing", outcome: "fail" },
      { id: "problems.missing-key", outcome: "skipped" },
    ]);
    const lenient = await judge(framework, { required: false, profile: "stripe" });
    expect(notPassed(lenient)).toMatchObject([{ id: "problems.missing-key", outcome: "skipped" }]);
  });
});

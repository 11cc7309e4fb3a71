import { describe, expect, it } from "vitest";
import { type Report, type VerifyOptions, verify } from "../../src/conformance/conformance.ts";
import { type Flaw, WrongServer } from "./wrong-server.ts";

const options = {
  headers: { authorization: "Bearer first-caller-secret" },
  otherHeaders: { authorization: "Bearer other-caller-secret" },
  body: (n: number) => ({ amount: 100 + n, currency: "usd" }),
  invalidBody: { amount: "much" },
  timeoutMs: 5000,
  pauseMs: 20,
} satisfies Partial<VerifyOptions>;

async function judge(flaw: Flaw | undefined, more: Partial<VerifyOptions> = {}): Promise<Report> {
  const server = await WrongServer.start(flaw);
  try {
    const otherUrl = server.url.replace("charges", "refunds");
    return await verify({ url: server.url, effects: server.effects, otherUrl, ...options, ...more });
  } finally {
    await server.close();
  }
}

const ended = ({ checks }: Report, outcome: string) =>
  checks.filter((check) => check.outcome === outcome).map(({ id }) => id);

it("a server that is right passes every check", async () => {
  const report = await judge(undefined);
  expect(ended(report, "fail")).toEqual([]);
  expect(ended(report, "warn")).toEqual([]);
  expect(ended(report, "skipped")).toEqual([]);
  expect(report).toMatchObject({ passed: true, seesEffects: true, counts: { fail: 0 } });
});

describe("a server that is wrong in one way fails exactly what is meant for it", () => {
  const cases: Readonly<Record<Flaw, readonly string[]>> = {
    "reserves too late": ["concurrency.at-once"],
    "compares nothing": ["misuse.other-body", "misuse.other-path"],
    "stores nothing": [
      "replay.same-answer",
      "misuse.other-body",
      "concurrency.at-once",
      "disconnect.once-sent",
      "disconnect.while-running",
    ],
    "forgets what was left by its client": ["disconnect.once-sent", "disconnect.while-running"],
    "stops what was left by its client, and calls it done": [
      "disconnect.once-sent",
      "disconnect.while-running",
    ],
    "fails on long keys": ["key-format.long", "key-format.very-long"],
    "cuts off long keys": ["key-format.long", "key-format.very-long"],
    "fails on control characters": ["key-format.control-characters"],
    "renders replays anew": ["replay.same-answer"],
    "loses the type of replays": [],
    "overwrites the first answer on misuse": ["misuse.first-answer-stays"],
    "runs without a key": ["key-required.missing"],
    "takes an empty key for none": ["key-format.empty"],
    "fails when it is busy": ["concurrency.at-once"],
    "marks first answers as replays": ["replay.marked"],
    "executes what is spelled differently": ["json-equality.member-order", "json-equality.whitespace"],
    "shares keys between callers": ["hygiene.other-tenant"],
    "shares answers between paths": ["misuse.other-path"],
    "stores what it refused as done": ["errors.validation"],
    "has problems that lie": ["problems.missing-key", "problems.misuse"],
  };
  it.concurrent.each(Object.entries(cases))("%s", async (flaw, expected) => {
    const report = await judge(flaw as Flaw);
    const failed = report.checks.filter(({ outcome }) => outcome === "fail");
    expect(
      failed.map(({ id }) => id),
      JSON.stringify(failed.map(({ reason }) => reason)),
    ).toEqual(expected);
    expect(report.passed).toBe(expected.length === 0);
    expect(ended(report, "warn")).toEqual(flaw === "loses the type of replays" ? ["replay.headers"] : []);
  });
});

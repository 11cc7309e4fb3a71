import { Agent } from "node:http";
import { Agent as TlsAgent } from "node:https";
import { setTimeout as delay } from "node:timers/promises";
import { type Check, type Finding, fail, skipped } from "./check.ts";
import { checks } from "./checks/all.ts";
import { replayId } from "./checks/replay.ts";
import { Evidence } from "./evidence.ts";
import { LedgerError } from "./ledger.ts";
import { settingsOf, type VerifyOptions } from "./options.ts";
import {
  type Acquaintance,
  differenceOf,
  isMarkedReplayed,
  isSuccess,
  type Operation,
  Probe,
  type Shared,
} from "./probe.ts";
import type { CheckResult, Outcome, Report } from "./report/report.ts";
import { type Answer, NoAnswerError } from "./wire.ts";

/** Nothing could be checked: the API cannot be reached, or refuses even a request that should be fine. */
export class CannotVerifyError extends Error {
  override readonly name = "CannotVerifyError";
}

/**
 * Finds out from outside whether an API keeps the contract of idempotency keys, whatever it is written in. It sends some
 * seventy requests, and about twenty of them do what the endpoint does: use a test environment.
 *
 * @example
 * const report = await verify({
 *   url: "https://test.example.com/charges",
 *   headers: { authorization: `Bearer ${token}` },
 *   body: (n) => ({ amount: 500 + n, currency: "usd" }),
 *   effects: (key) => countCharges(key),
 * });
 * console.log(report.passed, reportText(report));
 */
export async function verify(options: VerifyOptions): Promise<Report> {
  const settings = settingsOf(options);
  const { url, method, headers, otherHeaders = {}, keyHeader } = settings;
  const agent = new (url.protocol === "https:" ? TlsAgent : Agent)({ keepAlive: true, maxSockets: 1 });
  const evidence = new Evidence(keyHeader, headers, otherHeaders);
  const shared: Shared = { settings, evidence, agent, operations: 0 };
  const startedAt = performance.now();
  const started = new Date();
  const results: CheckResult[] = [];
  try {
    const known = await acquaint(shared);
    for (const check of checks) {
      const result = await run(check, new Probe(shared, known), results);
      if (result.id === replayId && result.outcome === "fail") known.replays = false;
      results.push(result);
      options.onProgress?.({ done: results.length, total: checks.length, result });
    }
  } finally {
    agent.destroy();
  }
  const count = (outcome: Outcome) => results.filter((result) => result.outcome === outcome).length;
  const counts = { pass: count("pass"), fail: count("fail"), warn: count("warn"), skipped: count("skipped") };
  return {
    url: evidence.url(url),
    method,
    profile: settings.profile.name,
    startedAt: started.toISOString(),
    tookMs: Math.round(performance.now() - startedAt),
    seesEffects: settings.effects !== undefined,
    counts,
    passed: counts.fail === 0,
    checks: results,
  };
}

/** Requests under keys of their own that have to work; without that, no other answer would mean anything. */
async function acquaint(shared: Shared): Promise<Acquaintance> {
  const probe = new Probe(shared, {
    status: 0,
    tookMs: 0,
    ledgerLagMs: 0,
    tellsApart: false,
    marksHonestly: true,
    replays: true,
  });
  try {
    // The first one also opens connections, on both sides: only the second tells how long a request takes.
    await worked(probe, probe.operation());
    const operation = probe.operation();
    const { answer, tookMs, ledgerLagMs } = await worked(probe, operation);
    // The very same body again, under another key: an API that gives back what it got has not told two executions apart.
    const again = await probe.send({ ...probe.operation(), body: operation.body });
    return {
      status: answer.status,
      tookMs,
      ledgerLagMs,
      tellsApart: differenceOf(answer, again) !== undefined,
      marksHonestly: !isMarkedReplayed(answer) && !isMarkedReplayed(again),
      replays: true,
    };
  } catch (error) {
    if (error instanceof NoAnswerError)
      throw new CannotVerifyError(`${probe.settings.url.origin} gives no answer: ${error.message}`);
    if (error instanceof LedgerError) throw new CannotVerifyError(error.message);
    throw error;
  }
}

async function worked(
  probe: Probe,
  operation: Operation,
): Promise<Pick<Acquaintance, "tookMs" | "ledgerLagMs"> & { readonly answer: Answer }> {
  const startedAt = performance.now();
  const answer = await probe.send(operation);
  const tookMs = performance.now() - startedAt;
  const { method, url } = probe.settings;
  if (!isSuccess(answer)) {
    const shown = probe.exchanges.at(-1)?.answer;
    const body = shown?.kind === "answered" ? shown.body.slice(0, 300) : "";
    throw new CannotVerifyError(
      `${method} ${url.pathname} with a new key is answered with ${answer.status}, so nothing can be checked: give the headers and the body of a request that works. ${body}`,
    );
  }
  return { answer, tookMs, ledgerLagMs: await counted(probe, operation.key) };
}

const pollMs = 20;

/** Waits until the ledger has the effect, and answers how long that took. */
async function counted(probe: Probe, key: string): Promise<number> {
  const startedAt = performance.now();
  for (;;) {
    const effects = await probe.effects(key);
    const lagMs = performance.now() - startedAt;
    if (effects === undefined || effects === 1) return lagMs;
    if (effects > 1 || lagMs > probe.settings.timeoutMs) {
      throw new CannotVerifyError(
        `the ledger has ${effects} effects for a key under which one request was sent: it must count by key, and nothing else`,
      );
    }
    await delay(pollMs);
  }
}

async function run(check: Check, probe: Probe, before: readonly CheckResult[]): Promise<CheckResult> {
  const { id, title, needs } = check;
  const startedAt = performance.now();
  const needed = before.find((result) => result.id === needs);
  const { outcome, reason } =
    needed?.outcome === "fail"
      ? skipped(`${needs} failed, and without it this says nothing of its own`)
      : await check.run(probe).catch(findingOf);
  return {
    id,
    topic: id.split(".", 1)[0] ?? id,
    title,
    outcome,
    reason: reason.trim(),
    tookMs: Math.round(performance.now() - startedAt),
    evidence: probe.exchanges,
    evidenceLeftOut: probe.exchangesLeftOut,
  };
}

function findingOf(error: unknown): Finding {
  if (error instanceof NoAnswerError) return fail(`a request got no answer: ${error.message}`);
  if (error instanceof LedgerError) return fail(error.message);
  throw error;
}

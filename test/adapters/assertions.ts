import { expect } from "vitest";
import type { ProblemCode } from "../../src/index.ts";
import type { Answer } from "./client.ts";

/** What a server may say differently each time, or about one connection. */
const perConnection = new Set([
  "date",
  "connection",
  "keep-alive",
  "content-length",
  "transfer-encoding",
  "idempotency-replayed",
]);

/** The header fields that a replay must repeat; `exceptions` are those which it must not. */
function lasting(answer: Answer, exceptions: readonly string[]): string[] {
  return answer.fields
    .filter(([name]) => !perConnection.has(name) && !exceptions.includes(name))
    .map(([name, value]) => `${name}: ${value}`)
    .sort();
}

/** The second answer is the first one again, byte for byte, and says that it is a replay. */
export function expectReplay(
  first: Answer,
  second: Answer,
  options: { readonly lost?: readonly string[]; readonly mark?: string } = {},
): void {
  const mark = options.mark ?? "idempotency-replayed";
  expect(first.headers[mark]).toBeUndefined();
  expect(second.headers[mark]).toBe("true");
  expect(second.status).toBe(first.status);
  expect(second.body.equals(first.body)).toBe(true);
  const ignored = [...(options.lost ?? []), mark];
  expect(lasting(second, ignored)).toEqual(lasting(first, ignored));
  for (const name of options.lost ?? []) expect(second.headers[name]).toBeUndefined();
}

/** An answer that Latchkey gives in its own name. */
export function expectProblem(
  answer: Answer,
  status: number,
  code: ProblemCode,
  retry?: "same-key" | "new-key" | "never",
): void {
  expect({ status: answer.status, body: answer.text }).toMatchObject({ status });
  expect(answer.headers["content-type"]).toMatch(/^application\/problem\+json\b/);
  // What was too large to keep is an answer to a retry, all others are answers of their own.
  expect(answer.headers["idempotency-replayed"]).toBe(code === "response-not-stored" ? "true" : undefined);
  const problem = JSON.parse(answer.text) as Record<string, unknown>;
  expect(problem).toMatchObject({
    type: `https://latchkey.dev/problems/${code}`,
    code,
    status,
    ...(retry === undefined ? {} : { retry }),
  });
  expect(String(problem.title).length).toBeGreaterThan(5);
  expect(String(problem.detail).length).toBeGreaterThan(5);
  expect(problem.retry).toMatch(/^(same-key|new-key|never)$/);
}

export function expectRetryAfter(answer: Answer): void {
  expect(answer.headers["retry-after"]).toMatch(/^[1-9]\d*$/);
}

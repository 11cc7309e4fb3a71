/**
 * The client of the payments API: what an app on a phone should do. One key for one purchase, whatever happens; another
 * try when nobody can know what became of the last one, each time after a longer pause.
 */

export interface Purchase {
  readonly order: string;
  /** Made once, before the first request: every try for this purchase carries it. */
  readonly key: string;
  readonly isProtected: boolean;
  readonly amount: number;
}

export type Outcome =
  | { readonly kind: "paid"; readonly charge: string; readonly isReplay: boolean }
  | { readonly kind: "refused"; readonly status: number; readonly why: string }
  | { readonly kind: "gave-up" };

const attemptsMax = 20; // Half a minute in all: longer than a slow machine takes to start a process.
const firstWaitMs = 1_500; // Shorter than an app would, so that nobody has to watch a clock; doubled with each try.
const waitMsMax = 12_000;
const pauseMs = 300; // Before the second try; doubled with each.
const pauseMsMax = 2_000; // The server may ask for more (Retry-After). A real client obeys; this one has an audience.

/** These say: not now, or nobody knows. Everything else is final. */
const worthAnotherTry: ReadonlySet<number> = new Set([408, 409, 425, 429, 500, 502, 503, 504]);

export function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** One press of the button, until it is known what came of it. */
export async function press(
  purchase: Purchase,
  options: { readonly tap: number; readonly signal: AbortSignal; readonly onTry: (attempt: number) => void },
): Promise<Outcome> {
  for (let attempt = 1; attempt <= attemptsMax; attempt += 1) {
    options.onTry(attempt);
    const tried = await inTurn(() => attemptOnce(purchase, { ...options, attempt }));
    if (tried.kind !== "again") return tried;
    await pause(Math.max(backOffMs(attempt), Math.min(tried.retryAfterMs, pauseMsMax)), options.signal);
  }
  return { kind: "gave-up" };
}

type Tried = Outcome | { readonly kind: "again"; readonly retryAfterMs: number };

async function attemptOnce(
  { order, key, isProtected, amount }: Purchase,
  { tap, attempt, signal }: { readonly tap: number; readonly attempt: number; readonly signal: AbortSignal },
): Promise<Tried> {
  const waitMs = Math.min(firstWaitMs * 2 ** (attempt - 1), waitMsMax);
  try {
    const response = await fetch(`/${isProtected ? "on" : "off"}/orders/${order}/payments`, {
      method: "POST",
      headers: {
        "content-type": "application/json",
        "idempotency-key": key,
        "x-tap": String(tap),
        "x-attempt": String(attempt),
      },
      body: JSON.stringify({ amount }),
      signal: AbortSignal.any([signal, AbortSignal.timeout(waitMs)]),
    });
    const body = (await response.json()) as Record<string, unknown>;
    if (response.ok) {
      const isReplay = response.headers.get("idempotency-replayed") === "true";
      return { kind: "paid", charge: String(body.charge), isReplay };
    }
    if (worthAnotherTry.has(response.status)) {
      return { kind: "again", retryAfterMs: 1000 * Number(response.headers.get("retry-after") ?? 0) };
    }
    const why = String(body.title ?? body.error ?? "");
    return { kind: "refused", status: response.status, why };
  } catch (error) {
    if (signal.aborted) throw error;
    // No answer, for whatever reason. It may have been executed.
    return { kind: "again", retryAfterMs: 0 };
  }
}

/** Between half and all of it, so that many clients that failed together do not come back together. */
function backOffMs(attempt: number): number {
  return Math.min(pauseMs * 2 ** (attempt - 1), pauseMsMax) * (0.5 + Math.random() / 2);
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/**
 * A browser has six connections to one server, and one of them is for what this page is told. The others would wait in
 * the browser with their clock running, as if somebody were working on them; so they wait here.
 */
const atOnce = 5;
let busy = 0;
const waiting: (() => void)[] = [];

async function inTurn<T>(work: () => Promise<T>): Promise<T> {
  if (busy >= atOnce) await new Promise<void>((resolve) => waiting.push(resolve));
  else busy += 1;
  try {
    return await work();
  } finally {
    const next = waiting.shift();
    if (next === undefined) busy -= 1;
    else next();
  }
}

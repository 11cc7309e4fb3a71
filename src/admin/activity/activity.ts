import { ConfigError } from "../../core/errors.ts";
import type { Latchkey } from "../../latchkey.ts";
import { Reporter } from "./reporter.ts";

export interface ReportOptions {
  /** What this process is, such as `api`, `gateway` or `worker`; what was said before if left out. */
  readonly role?: string | undefined;
  /** How often it tells of itself; 5 s if left out. */
  readonly intervalMs?: number | undefined;
}

/** A process that tells of itself. */
export interface Reporting {
  /** Which of the processes it is. */
  readonly id: string;
  /** The store's time, as far as it is known here. */
  now(): number;
  /** Tells what is left, and ends it. Call it before `latchkey.close()`. */
  stop(): Promise<void>;
}

/**
 * Has this process tell the others, by notes in the store, what its requests come to, how its workers are, and that it
 * lives: what the console plots. Called more than once for one Latchkey, it is still told once.
 *
 * @example
 * ```ts
 * const reporting = reportActivity(latchkey, { role: "api" });
 * ```
 */
export function reportActivity<Tx>(latchkey: Latchkey<Tx>, options: ReportOptions = {}): Reporting {
  const { role, intervalMs = intervalMsDefault } = options;
  if (role !== undefined && !/^[\w .-]{1,50}$/.test(role)) {
    throw new ConfigError(`role is "${role}" and must be 1 to 50 letters, digits, spaces, dots or dashes`);
  }
  if (!Number.isFinite(intervalMs) || intervalMs < intervalMsMin) {
    throw new ConfigError(`intervalMs is ${intervalMs} and must be at least ${intervalMsMin}`);
  }
  const { engine } = latchkey;
  const shared = reporters.get(engine) ?? {
    reporter: new Reporter(latchkey as Latchkey, { role: role ?? roleDefault, intervalMs }),
    users: 0,
  };
  reporters.set(engine, shared);
  shared.users += 1;
  if (role !== undefined) shared.reporter.role = role;
  let isStopped = false;
  return {
    id: shared.reporter.id,
    now: () => shared.reporter.now(),
    async stop() {
      if (isStopped) return;
      isStopped = true;
      shared.users -= 1;
      if (shared.users > 0) return;
      reporters.delete(engine);
      await shared.reporter.stop();
    },
  };
}

/** Two that count the same events would count them twice. */
const reporters = new WeakMap<object, { readonly reporter: Reporter; users: number }>();

const roleDefault = "admin"; // Nobody but the admin API leaves it out.
const intervalMsDefault = 5_000; // What an operator who watches does not mind.
const intervalMsMin = 100;

import type { Latchkey } from "latchkey";
import { dispatchTo, type RunningWorkers, startWorkers, toHandlers } from "latchkey/workers";
import type { Books, Receipt } from "./books/books.ts";
import { userHeader } from "./service.ts";

export interface RideWorkersOptions<Tx> {
  readonly latchkey: Latchkey<Tx>;
  readonly books: Books<Tx>;
  /** Where the service listens: what a crash left half done is sent there again. */
  readonly serviceUrl: string;
  /** For those who cannot wait: a demonstration, a test. */
  readonly pace?: Partial<RidePace>;
}

export interface RidePace {
  /** How often the workers look for work. */
  readonly intervalMs: number;
  /** How long they wait before they look at the same thing again: `baseMs`, then twice as long each time. */
  readonly backoff: { readonly baseMs: number; readonly capMs: number };
  /** How often they try before they leave it to a client or an operator. */
  readonly attemptsMax: number;
  /** How long the messages of a relay that died wait for another one. */
  readonly relayLeaseMs: number;
}

/**
 * Everything that happens without a client: dead executions are found (sweeper) and finished (completer), lost answers
 * of the provider are found out (reconciler), receipts are sent (relay), and what is old is removed (reaper).
 */
export function startRideWorkers<Tx>(options: RideWorkersOptions<Tx>): RunningWorkers {
  const { latchkey, books, serviceUrl } = options;
  const { relayLeaseMs, ...pace } = options.pace ?? {};
  return startWorkers(latchkey, {
    sweeper: { ...pace },
    reaper: {},
    reconciler: { ...pace },
    completer: { dispatch: dispatchTo(serviceUrl, ({ tenant }) => ({ [userHeader]: tenant })), ...pace },
    relay: {
      deliver: toHandlers({ "receipt.send": ({ key, payload }) => sendReceipt(key, payload) }),
      ...(relayLeaseMs === undefined ? {} : { leaseMs: relayLeaseMs }),
      ...pace,
    },
  });

  /** A message comes at least once, and its key is the same each time: that is an operation like any other. */
  async function sendReceipt(key: string, payload: unknown): Promise<void> {
    const receipt = payload as Receipt;
    await latchkey.run({ tenant: "receipts", key, input: payload, policy: { onCrash: "resume" } }, (op) =>
      op.atomic("receipt_sent", (tx) => books.insertReceipt(tx, receipt)),
    );
  }
}

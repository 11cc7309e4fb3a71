import type { Latchkey } from "../latchkey.ts";
import { type CompleterOptions, completer } from "./completer.ts";
import type { Worker } from "./loop.ts";
import { type ReaperOptions, reaper } from "./reaper.ts";
import { type ReconcilerOptions, reconciler } from "./reconciler.ts";
import { type RelayOptions, relay } from "./relay.ts";
import { type SweeperOptions, sweeper } from "./sweeper.ts";

export {
  type CompleterCounts,
  type CompleterOptions,
  completer,
  type Dispatch,
  type DispatchRequest,
  dispatchTo,
} from "./completer.ts";
export {
  type Deliver,
  type DeliveredMessage,
  type DeliveryContext,
  type DeliveryReceipt,
  NotDeliverableError,
  RetryLaterError,
} from "./deliveries/deliver.ts";
export { toHandlers } from "./deliveries/handlers.ts";
export { type JetStreamOptions, toJetStream } from "./deliveries/jetstream.ts";
export { type KafkaOptions, toKafka } from "./deliveries/kafka.ts";
export { type RabbitMqOptions, toRabbitMq } from "./deliveries/rabbitmq.ts";
export { toWebhook, type WebhookOptions } from "./deliveries/webhook.ts";
export {
  type CompareLedgersOptions,
  compareLedgers,
  type LedgerCounts,
  type LedgerDifference,
  UnsortedLedgerError,
} from "./ledger.ts";
export type { Worker } from "./loop.ts";
export { type ReaperCounts, type ReaperOptions, reaper } from "./reaper.ts";
export { type ReconcilerCounts, type ReconcilerOptions, reconciler } from "./reconciler.ts";
export { type RelayCounts, type RelayOptions, relay } from "./relay.ts";
export { type SweeperOptions, sweeper } from "./sweeper.ts";

/** Which workers run, and how. `false` leaves one out. */
export interface WorkersOptions {
  readonly sweeper?: SweeperOptions | false;
  readonly reaper?: ReaperOptions | false;
  readonly reconciler?: ReconcilerOptions | false;
  /** Runs only if it is told where messages go. */
  readonly relay?: RelayOptions | false;
  /** Runs only if it is told how kept requests are sent to the service. */
  readonly completer?: CompleterOptions | false;
}

export interface RunningWorkers {
  readonly names: readonly string[];
  /** Ends every worker after the round that it is in. */
  stop(): Promise<void>;
}

/**
 * Starts the workers in this process. Any number of processes may do so.
 *
 * @example
 * ```ts
 * const workers = startWorkers(latchkey, {
 *   relay: { deliver: toHandlers({ "receipt.send": (message) => mail(message.payload) }) },
 *   completer: { dispatch: dispatchTo("http://127.0.0.1:3000") },
 * });
 * process.on("SIGTERM", () => workers.stop());
 * ```
 */
export function startWorkers(latchkey: Latchkey, options: WorkersOptions = {}): RunningWorkers {
  const workers: Worker<unknown>[] = [];
  if (options.sweeper !== false) workers.push(sweeper(latchkey, options.sweeper));
  if (options.reaper !== false) workers.push(reaper(latchkey, options.reaper));
  if (options.reconciler !== false) workers.push(reconciler(latchkey, options.reconciler));
  if (options.relay) workers.push(relay(latchkey, options.relay));
  if (options.completer) workers.push(completer(latchkey, options.completer));
  const stopping = new AbortController();
  const ended = workers.map((worker) => worker.run(stopping.signal));
  return {
    names: workers.map(({ name }) => name),
    async stop() {
      stopping.abort();
      await Promise.all(ended);
    },
  };
}

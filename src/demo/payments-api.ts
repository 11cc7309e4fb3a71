import { randomUUID } from "node:crypto";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { idempotent } from "../adapters/node.ts";
import { createLatchkey, type Latchkey } from "../latchkey.ts";
import { currentOperation } from "../operation/operation.ts";
import type { OutcomeVerdict, ReconcileQuestion } from "../operation/reconciliation.ts";
import { sqliteStore } from "../stores/sqlite/store.ts";
import { type RunningWorkers, startWorkers } from "../workers/workers.ts";
import { bytesOf, objectIn, sendJson } from "./json.ts";
import type { Charge } from "./provider.ts";
import { ProviderClient, ProviderDownError } from "./provider-client.ts";

export interface PaymentsOptions {
  readonly databasePath: string;
  readonly providerUrl: string;
  /** Told when the API's own code begins to work on a request, and when it ends. */
  onHandler(what: {
    readonly order: string;
    readonly request: number;
    readonly state: "begun" | "answered" | "failed";
  }): void;
}

/** Whose keys they are; a real API takes it from what authenticated the caller. */
export const shop = "playground";

/** The header by which the network between client and API tells its requests apart. */
export const requestHeader = "x-playground-request";

// A crash is noticed when the lease has run out, and somebody is watching: production has 15 seconds here.
const leaseMs = 2_000;
// For the same reason the workers look several times a second, where production has every five seconds.
const workerMs = 300;

/**
 * The payments API. Its handler is mounted twice: behind Latchkey under `/on`, and as it is under `/off`. What it does is
 * the same, but for the call to the provider, which Latchkey is told about.
 */
export function paymentsApi(options: PaymentsOptions): {
  readonly server: Server;
  readonly latchkey: Latchkey;
  readonly startWorkers: () => RunningWorkers;
} {
  const provider = new ProviderClient(options.providerUrl);
  const latchkey = createLatchkey({ store: sqliteStore(options.databasePath), tenant: () => shop, leaseMs });

  function pay(call: CallProvider) {
    return async (req: IncomingMessage, res: ServerResponse): Promise<void> => {
      const [, , , order = ""] = (req.url ?? "").split("/");
      const request = Number(req.headers[requestHeader]);
      options.onHandler({ order, request, state: "begun" });
      try {
        const { amount } = objectIn(await bytesOf(req));
        if (typeof amount !== "number" || !Number.isInteger(amount) || amount <= 0) {
          sendJson(res, 400, { error: "amount must be a whole number of cents above 0" });
        } else {
          const charge = await call((reference) => provider.charge({ order, amount, reference }));
          sendJson(res, 201, receiptOf(charge));
        }
        options.onHandler({ order, request, state: "answered" });
      } catch (error) {
        options.onHandler({ order, request, state: "failed" });
        const isDown = error instanceof ProviderDownError;
        sendJson(res, isDown ? 503 : 502, { error: error instanceof Error ? error.message : String(error) });
      }
    };
  }

  /** Announced before it is made, so that a crash in the middle of it leaves a question and not a second charge. */
  const protectedCall: CallProvider = (call) =>
    currentOperation().effect(effect, ({ idempotencyKey }) => call(idempotencyKey), {
      keyed: false,
      isDefinitelyNotExecuted: (error) => error instanceof ProviderDownError,
    });

  async function reconcile({ idempotencyKeyOf, signal }: ReconcileQuestion): Promise<OutcomeVerdict> {
    const { found, charge } = await provider.find(idempotencyKeyOf(effect), signal);
    if (charge !== null) return { kind: "completed", response: { status: 201, body: receiptOf(charge) } };
    // The provider is on this machine: what it has not received by now is not on its way either.
    return found === "nothing" ? { kind: "not-executed" } : { kind: "unknown" };
  }

  const policy = { name: "payments.create", reconcileAfterMs: workerMs, reconcile };
  const withLatchkey = idempotent(latchkey, policy)(pay(protectedCall));
  const withoutLatchkey = pay((call) => call(randomUUID()));
  const server = createServer((req, res) => {
    const isPayment = req.method === "POST" && paymentPath.test(req.url ?? "");
    if (!isPayment) return sendJson(res, 404, { error: "try POST /on/orders/1/payments" });
    void (req.url?.startsWith("/on/") ? withLatchkey : withoutLatchkey)(req, res);
  });

  return {
    server,
    latchkey,
    startWorkers: () =>
      startWorkers(latchkey, {
        sweeper: { intervalMs: workerMs },
        reconciler: { intervalMs: workerMs, backoff: { baseMs: workerMs, capMs: 10 * workerMs } },
      }),
  };
}

/** Calls the provider, under a reference by which it can be asked later. */
type CallProvider = (call: (reference: string) => Promise<Charge>) => Promise<Charge>;

const effect = "charge";

export const paymentPath = /^\/(on|off)\/orders\/(\d{1,9})\/payments$/;

function receiptOf(charge: Charge): { readonly paid: number; readonly charge: string } {
  return { paid: charge.amount, charge: charge.id };
}

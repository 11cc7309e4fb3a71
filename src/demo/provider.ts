import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import { bytesOf, objectIn, sendJson } from "./json.ts";
import { type Listening, listen } from "./listen.ts";
import type { Faults } from "./scenarios.ts";
import type { TraceEntry } from "./trace.ts";

/** What the provider says about a charge. */
export interface Charge {
  readonly id: string;
  readonly order: string;
  readonly amount: number;
  /** The caller's own name for it, by which it can be asked for. */
  readonly reference: string;
}

export interface ProviderOptions {
  /** The trouble that is arranged for an order; undefined for one that nobody knows. */
  faults(order: string): Faults | undefined;
  trace(order: string, entry: TraceEntry): void;
  killPayments(): void;
}

const ledgerMax = 10_000; // Far more than a person charges; a script must not fill the memory.

/**
 * The fake payment provider. It charges each time it is asked to, as many real ones do: it does not deduplicate, but it
 * can be asked what became of a reference.
 */
export async function startProvider(options: ProviderOptions): Promise<Listening & { clear(): void }> {
  const ledger = new Map<string, Charge>();
  /** The orders of the charges that are being made, by reference. */
  const processing = new Map<string, string>();
  let calls = 0;

  async function charge(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const { order, amount, reference } = objectIn(await bytesOf(req));
    if (typeof order !== "string" || typeof amount !== "number" || typeof reference !== "string") {
      return sendJson(res, 400, { error: "a charge needs an order, an amount and a reference" });
    }
    const faults = options.faults(order);
    calls += 1;
    const call = calls;
    const tell = (entry: Untimed) => options.trace(order, { at: Date.now(), ...entry } as TraceEntry);
    tell({ kind: "call-begun", call, amount });
    if (faults !== undefined && faults.refusals > 0) {
      faults.refusals -= 1;
      tell({ kind: "call-ended", call, how: "refused" });
      return sendJson(res, 503, { error: "the provider is down, and has charged nothing" });
    }
    processing.set(reference, order);
    await sleep(faults?.providerMs ?? 0);
    processing.delete(reference);
    const made = { id: `ch_${call}`, order, amount, reference };
    ledger.set(reference, made);
    for (const oldest of ledger.keys()) if (ledger.size > ledgerMax) ledger.delete(oldest);
    tell({ kind: "charged", call, charge: made.id, amount });
    if (faults !== undefined && faults.kills > 0) {
      faults.kills -= 1;
      options.killPayments();
      tell({ kind: "call-ended", call, how: "unheard" });
      res.destroy();
      return;
    }
    tell({ kind: "call-ended", call, how: req.socket.destroyed ? "unheard" : "answered" });
    return sendJson(res, 201, made);
  }

  function find(res: ServerResponse, reference: string): void {
    const made = ledger.get(reference);
    const order = made?.order ?? processing.get(reference);
    const found = made !== undefined ? "charged" : order !== undefined ? "processing" : "nothing";
    if (order !== undefined) options.trace(order, { at: Date.now(), kind: "provider-asked", found });
    sendJson(res, 200, { found, charge: made ?? null });
  }

  const server = createServer((req, res) => {
    const url = new URL(req.url ?? "/", "http://provider");
    if (req.method === "POST" && url.pathname === "/charges") {
      charge(req, res).catch((error) => sendJson(res, 400, { error: String(error) }));
    } else if (req.method === "GET" && url.pathname === "/charges") {
      find(res, url.searchParams.get("reference") ?? "");
    } else {
      sendJson(res, 404, { error: "there is nothing here" });
    }
  });
  const listening = await listen(server, { port: 0 });
  return { ...listening, clear: () => ledger.clear() };
}

type Untimed = TraceEntry extends infer Entry ? (Entry extends unknown ? Omit<Entry, "at"> : never) : never;

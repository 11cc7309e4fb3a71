// One of several processes under one limit. It sends requests with new keys to itself, many of one tenant and a few of a
// tenant of its own, for as long as it is told to, and tells what became of them.
import { idempotent } from "../../src/adapters/fetch.ts";
import { createLatchkey, type LatchkeyEvent, type Rate, type Store } from "../../src/index.ts";
import { openStore } from "../../src/stores/open-store.ts";

export interface Spray {
  readonly forMs: number;
  /** Requests of the tenant that sprays, each time. */
  readonly each: number;
  readonly everyMs: number;
}

export interface Sprayed {
  /** When each request of the tenant that sprays was executed. */
  readonly executedAt: readonly number[];
  /** How many of its requests were answered how. */
  readonly statuses: Readonly<Record<number, number>>;
  /** The same for the tenant that does not. */
  readonly calm: Readonly<Record<number, number>>;
  readonly noteCalls: number;
  readonly problems: readonly string[];
}

const [url, limit] = process.argv.slice(2) as [string, string];
const opened = await openStore(url);
let noteCalls = 0;
const store: Store = new Proxy(opened, {
  get(target, name) {
    const value: unknown = Reflect.get(target, name, target);
    if (name === "notes") {
      return {
        read: (names: readonly string[]) => counted(() => target.notes.read(names)),
        write: (writes: Parameters<Store["notes"]["write"]>[0]) => counted(() => target.notes.write(writes)),
      };
    }
    return typeof value === "function" ? value.bind(target) : value;
  },
});

function counted<T>(call: () => T): T {
  noteCalls += 1;
  return call();
}

const problems: string[] = [];
const latchkey = createLatchkey({
  store,
  tenant: (request) => request.header("x-tenant"),
  limits: { newKeys: JSON.parse(limit) as Rate, lookUps: { max: Number.POSITIVE_INFINITY, perMs: 1000 } },
  onEvent(event: LatchkeyEvent) {
    if (event.type === "store_error") problems.push(`${event.verb}: ${event.error}`);
  },
});
const executedAt: number[] = [];
const serve = idempotent(latchkey)((request) => {
  if (request.headers.get("x-tenant") === "spraying") executedAt.push(Date.now());
  return new Response("done", { status: 201 });
});

let keys = 0;
async function send(tenant: string, statuses: Record<number, number>): Promise<void> {
  keys += 1;
  const headers = { "idempotency-key": `${process.pid}-${keys}`, "x-tenant": tenant };
  const { status } = await serve(new Request("http://localhost/", { method: "POST", headers }));
  statuses[status] = (statuses[status] ?? 0) + 1;
}

process.on("message", async ({ forMs, each, everyMs }: Spray) => {
  const statuses: Record<number, number> = {};
  const calm: Record<number, number> = {};
  const pending: Promise<void>[] = [];
  const end = Date.now() + forMs;
  while (Date.now() < end) {
    for (let count = 0; count < each; count += 1) pending.push(send("spraying", statuses));
    if (keys % (20 * each) < each) pending.push(send(`calm-${process.pid}`, calm));
    await new Promise((resolve) => setTimeout(resolve, everyMs));
  }
  await Promise.all(pending);
  process.send?.({ executedAt, statuses, calm, noteCalls, problems } satisfies Sprayed);
});
process.on("disconnect", () => process.exit());
// Connections are there before anything is counted.
await send("warming-up", {});
noteCalls = 0;
process.send?.("ready");

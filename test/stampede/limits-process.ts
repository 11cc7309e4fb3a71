// One of several processes under one limit. It sends requests with new keys to itself, many of one tenant and a few of a
// tenant of its own, for as long as it is told to, and tells what became of them.
import { idempotent } from "../../src/adapters/fetch.ts";
import type { Notes, NotesWriting } from "../../src/core/notes.ts";
import { createLatchkey, type LatchkeyEvent, type Rate, type Store } from "../../src/index.ts";
import { openStore } from "../../src/stores/open-store.ts";

export interface Spray {
  /** Whom most requests are of; another one each time, who has used nothing of the limit. */
  readonly tenant: string;
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
  /** Why this process may have decided without the others, as docs/limits.md says that it does then. */
  readonly heldUp: readonly string[];
}

/** A process decides by itself after a second. One that was held up for nearly that long may have. */
const heldUpMs = 900;

const [url, limit] = process.argv.slice(2) as [string, string];
let heldUp: string[] = [];
let noteCalls = 0;
const opened = await openStore(url);
const store: Store = new Proxy(opened, {
  get(target, name) {
    if (name === "notes") return counted(target.notes);
    const value: unknown = Reflect.get(target, name, target);
    return typeof value === "function" ? value.bind(target) : value;
  },
});

function counted(notes: Notes): Notes {
  return {
    read(names) {
      noteCalls += 1;
      return notes.read(names);
    },
    async write(writes) {
      noteCalls += 1;
      const startedAt = performance.now();
      const writing = await notes.write(writes);
      watch(writing, startedAt);
      return writing;
    },
  };
}

/** Since when others have been faster each time. */
let outrunSince: number | undefined;

function watch({ answers }: NotesWriting, startedAt: number): void {
  const since = outrunSince ?? startedAt;
  outrunSince = answers.every(({ kind }) => kind === "written") ? undefined : since;
  const ms = performance.now() - since;
  if (ms > heldUpMs) heldUp.push(`a note took ${Math.round(ms)} ms`);
}

const latchkey = createLatchkey({
  store,
  tenant: (request) => request.header("x-tenant"),
  limits: { newKeys: JSON.parse(limit) as Rate, lookUps: { max: Number.POSITIVE_INFINITY, perMs: 1000 } },
  onEvent(event: LatchkeyEvent) {
    if (event.type === "store_error") heldUp.push(`${event.verb}: ${event.error}`);
  },
});
let executedAt: number[] = [];
const serve = idempotent(latchkey)((request) => {
  if (request.headers.get("x-tenant")?.startsWith("spraying")) executedAt.push(Date.now());
  return new Response("done", { status: 201 });
});

let keys = 0;
async function send(tenant: string, statuses: Record<number, number>): Promise<void> {
  keys += 1;
  const headers = { "idempotency-key": `${process.pid}-${keys}`, "x-tenant": tenant };
  const { status } = await serve(new Request("http://localhost/", { method: "POST", headers }));
  statuses[status] = (statuses[status] ?? 0) + 1;
}

process.on("message", async ({ tenant, forMs, each, everyMs }: Spray) => {
  [executedAt, heldUp, noteCalls] = [[], [], 0];
  const statuses: Record<number, number> = {};
  const calm: Record<number, number> = {};
  const pending: Promise<void>[] = [];
  const end = Date.now() + forMs;
  for (let turnedAt = Date.now(); turnedAt < end; ) {
    for (let count = 0; count < each; count += 1) pending.push(send(tenant, statuses));
    if (keys % (20 * each) < each) pending.push(send(`calm-${process.pid}`, calm));
    await new Promise((resolve) => setTimeout(resolve, everyMs));
    const turnMs = Date.now() - turnedAt;
    if (turnMs > heldUpMs) heldUp.push(`the process stood still for ${turnMs} ms`);
    turnedAt += turnMs;
  }
  await Promise.all(pending);
  process.send?.({ executedAt, statuses, calm, noteCalls, heldUp } satisfies Sprayed);
});
process.on("disconnect", () => process.exit());
// Connections are there before anything is counted.
await send("warming-up", {});
process.send?.("ready");

import { expect } from "vitest";
import { idempotent, statusResource } from "../../src/adapters/fetch.ts";
import type { StoredResponse } from "../../src/core/response.ts";
import type { ReserveRequest, Store } from "../../src/core/store.ts";
import type { RoutePolicy } from "../../src/http/gate.ts";
import { createLatchkey, type LatchkeyEvent, type LatchkeyOptions } from "../../src/index.ts";
import { type KeyRing, type KeyRingOptions, keyRing, type RingKey } from "../../src/privacy/key-ring.ts";
import { SealedStore, type SealedStoreOptions } from "../../src/privacy/sealed-store.ts";

export const firstKey: RingKey = { id: "first", secret: Buffer.alloc(32, 1) };
export const secondKey: RingKey = { id: "second", secret: Buffer.alloc(32, 2) };

export function ring(options: KeyRingOptions = {}, keys: readonly RingKey[] = [firstKey]): KeyRing {
  return keyRing(keys, options);
}

/** A store that seals, and fails loudly where something could not be opened beside others. */
export function sealed<Tx>(
  store: Store<Tx>,
  keys: KeyRing = ring(),
  options: Partial<SealedStoreOptions> = {},
): SealedStore<Tx> {
  const onUnreadable = (_: string, error: unknown) => {
    throw error;
  };
  return new SealedStore(store, { ring: keys, now: Date.now, onUnreadable, ...options });
}

type Handler = (request: Request) => Response | Promise<Response>;

/** One process that serves one route; the tenant is whoever the request says. */
export function service<Tx>(
  options: Partial<LatchkeyOptions<Tx>> & { readonly store: Store<Tx> },
  route: RoutePolicy<Request> = {},
  handler: Handler = async (request) => Response.json({ said: await request.text() }, { status: 201 }),
) {
  const events: LatchkeyEvent[] = [];
  const latchkey = createLatchkey<Tx>({
    tenant: (request) => request.header("x-tenant"),
    statusPath: "/status",
    onEvent: (event) => void events.push(event),
    ...options,
  });
  let runs = 0;
  const protect = idempotent(
    latchkey,
    route,
  )((request) => {
    runs += 1;
    return handler(request);
  });
  const status = statusResource(latchkey);
  return {
    latchkey,
    events,
    runs: () => runs,
    handle: protect,
    post: (key: string, body = "hello", tenant = "acme") =>
      protect(
        new Request("http://x/charges", {
          method: "POST",
          headers: { "idempotency-key": key, "x-tenant": tenant },
          body,
        }),
      ),
    status: (key: string, tenant = "acme") =>
      status(new Request(`http://x/status/${key}`, { headers: { "x-tenant": tenant } })),
    storeErrors: () =>
      events.flatMap((event) =>
        event.type === "store_error" ? [String((event.error as Error).message)] : [],
      ),
  };
}

export async function problemOf(response: Response): Promise<{ code: string; detail: string }> {
  return (await response.json()) as { code: string; detail: string };
}

/** The store with its replays changed on their way, as somebody could who can write to its database. */
export function tampered<Tx>(
  store: Store<Tx>,
  change: (response: StoredResponse, request: ReserveRequest) => StoredResponse | Promise<StoredResponse>,
): Store<Tx> {
  return new Proxy(store, {
    get(target, name) {
      if (name === "reserve") {
        return async (request: ReserveRequest) => {
          const answer = await target.reserve(request);
          if (answer.kind !== "replay") return answer;
          return { ...answer, response: await change(answer.response, request) };
        };
      }
      const value: unknown = Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
}

/** What the store itself holds of an answer. */
export async function storedAnswer(
  store: Store,
  key: string,
  scope = "acme",
): Promise<Extract<StoredResponse, { kind: "full" }>> {
  const { record } = await store.read({ scope, key });
  if (record?.state !== "completed" || record.response.kind !== "full") expect.fail(`${record?.state}`);
  return record.response;
}

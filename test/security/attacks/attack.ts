import { idempotent, statusResource } from "../../../src/adapters/fetch.ts";
import { createLatchkey, type LatchkeyOptions, type RoutePolicy } from "../../../src/index.ts";
import { memoryStore } from "../../../src/stores/memory/store.ts";
import { type ManualClock, manualClock } from "../../../src/testing/index.ts";

/**
 * One row of the threat model: tries to do the damage, and answers with how much was done. Without the control there
 * has to be some, or the attack would prove nothing.
 */
export type Attack = (isGuarded: boolean) => Promise<number>;

export const minute = 60_000;
export const hour = 60 * minute;

/** An API whose clock is turned by hand, and that counts what it does. */
export function payments(
  options: {
    readonly latchkey?: Partial<LatchkeyOptions>;
    readonly route?: RoutePolicy<Request>;
    readonly clock?: ManualClock;
    readonly handler?: (request: Request, nth: number) => Response | Promise<Response>;
  } = {},
) {
  const clock = options.clock ?? manualClock({ startMs: Date.UTC(2026, 5, 1) });
  const latchkey = createLatchkey({
    store: memoryStore({ clock: clock.now }),
    tenant: (request) => request.header("x-tenant"),
    statusPath: "/status",
    runtime: clock,
    ...options.latchkey,
  });
  let paid = 0;
  const protect = idempotent(
    latchkey,
    options.route,
  )(async (request) => {
    paid += 1;
    const tenant = request.headers.get("x-tenant");
    return (await options.handler?.(request, paid)) ?? Response.json({ tenant, nth: paid }, { status: 201 });
  });
  const status = statusResource(latchkey);
  return {
    clock,
    latchkey,
    /** How often the handler ran. */
    paid: () => paid,
    pay: (key: string, more: { tenant?: string; body?: unknown } = {}) =>
      protect(
        new Request("http://api/payments", {
          method: "POST",
          headers: {
            "idempotency-key": key,
            "x-tenant": more.tenant ?? "acme",
            "content-type": "application/json",
          },
          body: JSON.stringify(more.body ?? { amount: 10 }),
        }),
      ),
    status: (key: string, tenant: string) =>
      status(new Request(`http://api/status/${key}`, { headers: { "x-tenant": tenant } })),
  };
}

/** A UUID version 7 that was made at this time. */
export function uuidV7(ms: number, nth = 1): string {
  const time = ms.toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-${String(nth).padStart(12, "0")}`;
}

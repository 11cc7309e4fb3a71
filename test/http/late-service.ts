import { idempotent, statusResource } from "../../src/adapters/fetch.ts";
import { createLatchkey, type LatchkeyOptions, type PolicyInput } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { faultyStore, manualClock } from "../../src/testing/index.ts";

export const minute = 60_000;
export const hour = 60 * minute;

/** A payments API whose clock is turned by hand. */
export function service(
  policy: PolicyInput & Pick<LatchkeyOptions, "hashKeys">,
  handler?: () => Response | Promise<Response>,
) {
  const clock = manualClock({ startMs: Date.UTC(2026, 5, 1) });
  let suspendedMs = 0;
  const wallNow = () => clock.now() + suspendedMs;
  let isDown = false;
  const store = faultyStore({
    store: memoryStore({ clock: wallNow }),
    runtime: clock,
    choose: () => ({ kind: isDown ? "failBefore" : "none" }),
  });
  const latchkey = createLatchkey({
    store,
    tenant: (request) => request.header("x-tenant") ?? "acme",
    statusPath: "/status",
    runtime: { ...clock, wallNow },
    lateArrivals: "reject",
    retentionMs: hour,
    ...policy,
  });
  const ran: number[] = [];
  const protect = idempotent(latchkey)(async () => {
    ran.push(clock.now());
    return (await handler?.()) ?? Response.json({ ran: ran.length }, { status: 201 });
  });
  const status = statusResource(latchkey);
  return {
    clock,
    store,
    latchkey,
    ran,
    stopStore: () => {
      isDown = true;
    },
    /** The machine sleeps: everybody's clock goes on, and the one that this process measures by stands still. */
    suspend: (ms: number) => {
      suspendedMs += ms;
    },
    status: (key: string) => status(new Request(`http://x/status/${key}`)),
    post: (key: string, headers: Record<string, string> = {}, body = "{}") =>
      protect(
        new Request("http://x/payments", {
          method: "POST",
          headers: { "idempotency-key": key, "content-type": "application/json", ...headers },
          body,
        }),
      ),
  };
}

export function uuidV7(ms: number): string {
  const time = ms.toString(16).padStart(12, "0");
  return `${time.slice(0, 8)}-${time.slice(8)}-7000-8000-000000000001`;
}

export async function codeOf(response: Response): Promise<string> {
  return ((await response.json()) as { code: string }).code;
}

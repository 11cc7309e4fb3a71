import { afterEach } from "vitest";
import { type AdminServerOptions, serveAdmin } from "../../src/admin/admin.ts";
import { createLatchkey, type Latchkey } from "../../src/index.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { type ManualClock, manualClock } from "../../src/testing/index.ts";

/** Whom every test knows. */
export const ada = { name: "ada", token: "ada-0123456789abcdef" };
export const eve = { name: "eve", token: "eve-0123456789abcdef", readOnly: true };

const closers: (() => unknown)[] = [];
export const atTheEnd = (close: () => unknown) => void closers.push(close);
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

export interface AdminClient {
  readonly url: string;
  /** With ada's token, unless another is given; null for none. */
  ask(path: string, init?: RequestInit & { readonly token?: string | null }): Promise<Response>;
  get<View>(path: string): Promise<View>;
  post(path: string, body: unknown, init?: { readonly token?: string | null }): Promise<Response>;
}

export async function served<Tx>(
  latchkey: Latchkey<Tx>,
  options: Partial<AdminServerOptions> = {},
): Promise<AdminClient> {
  const server = await serveAdmin(latchkey, { port: 0, operators: [ada, eve], ...options });
  atTheEnd(() => server.close());
  return clientOf(server.url);
}

export function clientOf(url: string): AdminClient {
  const ask: AdminClient["ask"] = (path, { token = ada.token, ...init } = {}) => {
    const headers = new Headers(init.headers);
    if (token !== null) headers.set("authorization", `Bearer ${token}`);
    return fetch(url + path, { ...init, headers, redirect: "manual" });
  };
  return {
    url,
    ask,
    async get<View>(path: string) {
      const response = await ask(path);
      const body = (await response.json()) as View;
      if (response.status !== 200) throw new Error(`${path}: ${response.status} ${JSON.stringify(body)}`);
      return body;
    },
    post(path, body, init = {}) {
      const headers = { "content-type": "application/json" };
      const text = typeof body === "string" ? body : JSON.stringify(body);
      return ask(path, { ...init, method: "POST", headers, body: text });
    },
  };
}

export function inMemory(): Latchkey {
  const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
  atTheEnd(() => latchkey.close());
  return latchkey;
}

/** Time passes only when the test says so, for this Latchkey and the store that others may share. */
export function onVirtualTime(): {
  readonly latchkey: Latchkey;
  readonly clock: ManualClock;
  another(): Latchkey;
} {
  const clock = manualClock();
  const store = memoryStore({ clock: clock.now });
  const another = () => createLatchkey({ store, tenant: "single", runtime: clock });
  return { latchkey: another(), clock, another };
}

import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, afterEach, beforeAll, expect } from "vitest";
import { idempotent } from "../../src/adapters/node.ts";
import { type AdminOptions, serveAdmin } from "../../src/admin/admin.ts";
import { createLatchkey, currentOperation, type Latchkey, type LatchkeyOptions } from "../../src/index.ts";
import { type SqliteDatabase, sqliteStore } from "../../src/stores/sqlite/store.ts";
import { startBrowser } from "../support/browser.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";
import { watchedPage } from "../support/watched-page.ts";

export const ada = { name: "ada", token: "ada-0123456789abcdef" };
export const eve = { name: "eve", token: "eve-0123456789abcdef", readOnly: true };

/** A payments API on SQLite, its admin API, and the console in a real browser. */
export interface Bench {
  readonly latchkey: Latchkey<SqliteDatabase>;
  readonly page: Page;
  readonly url: string;
  /** How often the provider was called for this key. */
  executions(key: string): number;
  /** Pays under this key; `isLost` leaves the outcome unknown, because the provider's answer is. */
  pay(
    key: string,
    options?: { readonly tenant?: string; readonly amount?: number; readonly isLost?: boolean },
  ): Promise<Response>;
  signIn(token?: string): Promise<void>;
  /** Signs in as ada, and opens a page such as `records?state=unknown`. */
  open(page: string): Promise<void>;
  /** The browser tells of every request that fails; this endpoint refuses because the test wants it to. */
  expectRefusalOf(path: string): void;
  /** Between the browser and the admin API. */
  cutNetwork(): void;
  mendNetwork(): void;
}

let browser: Browser;
const closers: (() => unknown)[] = [];

/** To be called at the top of a test file: one browser for all of its tests, and nothing left behind by any. */
export function useBrowser(): void {
  beforeAll(async () => {
    browser = await startBrowser();
  }, 60_000);
  afterAll(() => browser?.close());
  afterEach(async () => {
    for (const close of closers.splice(0).reverse()) await close();
  });
}

export async function openBench(
  options: {
    readonly latchkey?: Partial<LatchkeyOptions<SqliteDatabase>>;
    readonly admin?: Partial<AdminOptions>;
    readonly context?: BrowserContextOptions;
  } = {},
): Promise<Bench> {
  const folder = mkdtempSync(join(tmpdir(), "latchkey-console-"));
  closers.push(() => rmSync(folder, { recursive: true, force: true }));
  const latchkey = createLatchkey<SqliteDatabase>({
    store: sqliteStore(join(folder, "latchkey.db")),
    tenant: (request) => request.header("x-account"),
    name: "charges",
    ...options.latchkey,
  });
  closers.push(() => latchkey.close({ drainMs: 100 }));

  const executed: string[] = [];
  const protect = idempotent(latchkey as Latchkey);
  const api = createServer(
    protect(async (req, res) => {
      const operation = currentOperation();
      const { key } = operation;
      const charge = await operation.effect(
        "charge_created",
        () => {
          executed.push(key);
          if (req.headers["x-lost"] !== undefined) throw new Error("the provider's answer was lost");
          return { id: `ch_${executed.length}` };
        },
        { keyed: false },
      );
      res.writeHead(201, { "content-type": "application/json" }).end(JSON.stringify({ key, charge }));
    }),
  );
  api.listen(0, "127.0.0.1");
  await once(api, "listening");
  closers.push(() => {
    api.closeAllConnections();
    api.close();
  });
  const apiUrl = `http://127.0.0.1:${(api.address() as AddressInfo).port}/charges`;

  const admin = await serveAdmin(latchkey, { port: 0, operators: [ada, eve], ...options.admin });
  closers.push(() => admin.close());
  const network = await startTcpProxy({ host: "127.0.0.1", port: admin.port });
  closers.push(() => network.close());
  const url = `http://127.0.0.1:${network.port}`;
  let isNetworkDown = false;
  const refusals: string[] = [];
  const watched = await watchedPage(browser, {
    origin: url,
    mayFail: (failed) => isNetworkDown || refusals.some((path) => failed === `${url}/api/${path}`),
    context: options.context ?? {},
  });
  closers.push(async () => {
    await watched.close();
    expect(watched.complaints).toEqual([]);
  });
  const { page } = watched;
  const signIn = async (token = ada.token) => {
    await page.goto(`${url}/`);
    await page.getByLabel("Operator token").fill(token);
    await page.getByRole("button", { name: "Sign in" }).click();
  };
  return {
    latchkey,
    page,
    url,
    executions: (key) => executed.filter((other) => other === key).length,
    pay: (key, { tenant = "acme", amount = 100, isLost = false } = {}) =>
      fetch(apiUrl, {
        method: "POST",
        headers: {
          "idempotency-key": key,
          "x-account": tenant,
          "content-type": "application/json",
          ...(isLost ? { "x-lost": "yes" } : {}),
        },
        body: JSON.stringify({ amount }),
      }),
    signIn,
    async open(at) {
      await signIn();
      await page.getByRole("navigation", { name: "Pages" }).waitFor();
      await page.goto(`${url}/#/${at}`);
    },
    expectRefusalOf: (path) => void refusals.push(path),
    cutNetwork() {
      isNetworkDown = true;
      network.refuse();
      network.cut();
    },
    mendNetwork: () => network.accept(),
  };
}

/** Something that waits until it is told to go on. */
export function gate(): { readonly opened: Promise<void>; open(): void } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}

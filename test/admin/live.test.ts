import { once } from "node:events";
import { createServer } from "node:http";
import { type AddressInfo, connect } from "node:net";
import { describe, expect, it } from "vitest";
import { adminHandler, type LiveEventView, serveAdmin } from "../../src/admin/admin.ts";
import { openApi } from "../../src/admin/openapi.ts";
import { createLatchkey } from "../../src/index.ts";
import { sqliteBusiness } from "../support/business.ts";
import { ada, atTheEnd, inMemory, onVirtualTime, served } from "./admin-client.ts";
import { complaints } from "./json-schema.ts";
import { listenTo } from "./live-client.ts";

const view = (type: string): LiveEventView => ({
  at: 1,
  type,
  outcome: null,
  scope: null,
  key: null,
  detail: null,
  process: "child",
});

describe("live events", () => {
  it("show an execution and its replay as they happen", async () => {
    const latchkey = inMemory();
    const admin = await served(latchkey);
    const listener = await listenTo(admin.url);
    const execute = () => latchkey.run({ tenant: "acme", key: "a" }, () => "done");
    await execute();
    await execute();
    await expect
      .poll(() => listener.events.map(({ type, outcome }) => `${type} ${outcome}`))
      .toEqual(["reserved created", "settled completed", "reserved replay"]);
    for (const event of listener.events) {
      expect(event).toMatchObject({ scope: "acme", key: "a", process: expect.any(String) });
      expect(Math.abs(event.at - Date.now())).toBeLessThan(60_000);
      expect(complaints(event, openApi.components.schemas.LiveEvent, openApi)).toEqual([]);
    }
  });

  it("show what another process did, by the audit trail, and nothing from before", async () => {
    const business = await sqliteBusiness();
    atTheEnd(() => business.close());
    const here = createLatchkey({ store: business.store, tenant: "single" });
    const elsewhere = createLatchkey({ store: business.another(), tenant: "single" });
    for (const key of ["a", "b"]) await elsewhere.run({ tenant: "acme", key }, () => "done");
    await elsewhere.bust({
      of: { tenant: "acme", key: "a" },
      by: "grace",
      reason: "before anybody listened",
    });
    const admin = await served(here);
    const listener = await listenTo(admin.url);
    await elsewhere.bust({ of: { tenant: "acme", key: "b" }, by: "grace", reason: "a wrong price" });
    await expect.poll(() => listener.events, { timeout: 5_000 }).toHaveLength(1);
    expect(listener.events[0]).toMatchObject({
      type: "audited",
      outcome: "expired",
      key: "b",
      process: null,
      detail: "completed → expired, by grace: a wrong price",
    });
  });

  it("include those of another source, until nobody listens", async () => {
    let tell: ((event: LiveEventView) => void) | undefined;
    const admin = await served(inMemory(), {
      events(listener) {
        tell = listener;
        return () => {
          tell = undefined;
        };
      },
    });
    expect(tell).toBeUndefined();
    const [one, other] = [await listenTo(admin.url), await listenTo(admin.url)];
    tell?.(view("settled"));
    await expect.poll(() => one.events).toEqual([view("settled")]);
    await expect.poll(() => other.events).toEqual([view("settled")]);
    one.stop();
    await one.ended;
    expect(tell).toBeDefined();
    other.stop();
    await expect.poll(() => tell).toBeUndefined();
  });

  it("are no more than can be read: the rest of a second is only counted", async () => {
    const { latchkey, clock } = onVirtualTime();
    let tell = (_event: LiveEventView) => {};
    const admin = await served(latchkey, {
      events(listener) {
        tell = listener;
        return () => {};
      },
    });
    const listener = await listenTo(admin.url);
    for (let n = 0; n < 1_000; n += 1) tell(view("settled"));
    await clock.advance(1_000);
    await expect.poll(() => listener.events.length).toBe(201);
    expect(listener.events.at(-1)).toMatchObject({
      type: "left_out",
      detail: "800 more events happened within this second",
    });
    tell(view("reserved"));
    await expect.poll(() => listener.events.at(-1)?.type).toBe("reserved");
  });

  it("are followed by a sign of life when nothing happens", async () => {
    const { latchkey, clock } = onVirtualTime();
    const admin = await served(latchkey);
    const listener = await listenTo(admin.url);
    await clock.advance(14_000);
    expect(listener.comments).toEqual(["listening"]);
    await clock.advance(2_000);
    await expect.poll(() => listener.comments).toEqual(["listening", "still here"]);
  });

  it("are not kept for a client that does not read them", async () => {
    const { latchkey, clock } = onVirtualTime();
    let tell = (_event: LiveEventView) => {};
    const handler = adminHandler(latchkey, {
      operators: [ada],
      events(listener) {
        tell = listener;
        return () => {};
      },
    });
    let unsent = 0;
    let isClosed = false;
    const server = createServer((req, res) => {
      res.on("close", () => {
        isClosed = true;
      });
      const { write } = res;
      res.write = ((...args: Parameters<typeof write>) => {
        const result = write.apply(res, args);
        unsent = Math.max(unsent, res.writableLength);
        return result;
      }) as typeof write;
      void handler(req, res);
    }).listen(0);
    atTheEnd(async () => {
      await handler.close();
      server.close();
    });
    await once(server, "listening");
    const socket = connect((server.address() as AddressInfo).port, "127.0.0.1", () => {
      socket.write(`GET /api/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${ada.token}\r\n\r\n`);
    });
    socket.on("error", () => {});
    atTheEnd(() => socket.destroy());
    await once(socket, "readable"); // And never read.
    const large = { ...view("settled"), detail: "x".repeat(10_000) };
    for (let second = 0; second < 100 && !isClosed; second += 1) {
      for (let n = 0; n < 200; n += 1) tell(large);
      await clock.advance(1_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await expect.poll(() => isClosed).toBe(true);
    expect(unsent).toBeLessThan(2 * 1_048_576);
  });

  it("end when the server is closed", async () => {
    const server = await serveAdmin(inMemory(), { port: 0, operators: [ada] });
    const listener = await listenTo(server.url);
    await server.close();
    await listener.ended;
  });

  it("cost nothing while nobody listens: the trail is not looked at", async () => {
    const { latchkey, clock } = onVirtualTime();
    let looks = 0;
    const { audit } = latchkey.store;
    Object.assign(latchkey.store, {
      audit(...args: Parameters<typeof audit>) {
        looks += 1;
        return audit.apply(latchkey.store, args);
      },
    });
    const admin = await served(latchkey);
    await clock.advance(10_000);
    expect(looks).toBe(0);
    const listener = await listenTo(admin.url);
    await clock.advance(3_000);
    expect(looks).toBe(4);
    listener.stop();
    await listener.ended;
    await expect
      .poll(async () => {
        const before = looks;
        await clock.advance(5_000);
        return looks - before;
      })
      .toBe(0);
  });
});

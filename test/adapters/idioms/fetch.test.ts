import { describe, expect, it } from "vitest";
import { idempotent } from "../../../src/adapters/fetch.ts";
import { ConfigError, createLatchkey, type LatchkeyEvent } from "../../../src/index.ts";
import { memoryStore } from "../../../src/stores/memory/store.ts";

function latchkeyInMemory() {
  const events: LatchkeyEvent[] = [];
  const latchkey = createLatchkey({
    store: memoryStore(),
    tenant: "single",
    onEvent: (event) => events.push(event),
  });
  return { latchkey, events };
}

function post(key: string, init: RequestInit = {}): Request {
  return new Request("http://localhost/charges", {
    method: "POST",
    headers: { "idempotency-key": key },
    ...init,
  });
}

describe("fetch", () => {
  it("the handler gets the very request that came in, and what its platform adds", async () => {
    const { latchkey } = latchkeyInMemory();
    let seen: unknown[] = [];
    const POST = idempotent(latchkey)(async (request, params: { id: string }, env: object) => {
      seen = [request, params, env];
      return new Response(await request.text());
    });
    const request = Object.assign(post("key-1", { body: "hello" }), { params: { id: "1" } });
    const params = { id: "1" };
    const env = {};
    expect(await (await POST(request, params, env)).text()).toBe("hello");
    expect(seen[0]).toBe(request);
    expect(seen[1]).toBe(params);
    expect(seen[2]).toBe(env);
  });

  it("a body that was consumed before is named as the mistake that it is", async () => {
    const { latchkey, events } = latchkeyInMemory();
    const POST = idempotent(latchkey)(() => new Response("never"));
    const request = post("key-1", { body: "hello" });
    await request.text();
    await expect(POST(request)).rejects.toThrow(ConfigError);
    expect(events).toEqual([]);
  });

  it("an error of the handler is the caller's to report, after the key is free again", async () => {
    const { latchkey, events } = latchkeyInMemory();
    const error = new Error("boom");
    const POST = idempotent(latchkey)(() => {
      throw error;
    });
    await expect(POST(post("key-1"))).rejects.toBe(error);
    expect(events).toContainEqual(expect.objectContaining({ type: "handler_failed", error }));
    expect(events).toContainEqual(expect.objectContaining({ type: "settled", as: "failed_retryable" }));
  });

  it("a redirect is replayed as a redirect", async () => {
    const { latchkey } = latchkeyInMemory();
    const POST = idempotent(latchkey)(() => Response.redirect("http://localhost/charges/1", 303));
    for (const replayed of [null, "true"]) {
      const response = await POST(post("key-1"));
      expect(response.status).toBe(303);
      expect(response.headers.get("location")).toBe("http://localhost/charges/1");
      expect(response.headers.get("idempotency-replayed")).toBe(replayed);
    }
  });

  it("a streaming answer is kept although its sender gives the memory of each part away", async () => {
    const { latchkey } = latchkeyInMemory();
    const POST = idempotent(latchkey, { streaming: true })(() => {
      const parts = ["one ", "two ", "three"].map((part) => new TextEncoder().encode(part));
      return new Response(ReadableStream.from(parts));
    });
    const first = await POST(post("key-1"));
    let sent = 0;
    for await (const part of first.body as AsyncIterable<Uint8Array>) {
      sent += part.byteLength;
      structuredClone(part, { transfer: [part.buffer as ArrayBuffer] });
    }
    expect(sent).toBe(13);
    expect(await (await POST(post("key-1"))).text()).toBe("one two three");
  });

  it("a fragment is no part of a request", async () => {
    const { latchkey } = latchkeyInMemory();
    const POST = idempotent(latchkey)(() => new Response("done"));
    const at = (url: string) =>
      POST(new Request(url, { method: "POST", headers: { "idempotency-key": "k" } }));
    await at("http://localhost/charges#top");
    expect((await at("http://localhost/charges")).headers.get("idempotency-replayed")).toBe("true");
  });
});

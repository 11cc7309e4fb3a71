import { expect, it } from "vitest";
import { idempotent } from "../../src/adapters/fetch.ts";
import type { HeaderPair } from "../../src/core/response.ts";
import { fetchRequest } from "../../src/http/fetch.ts";
import { Gate } from "../../src/http/gate.ts";
import { createLatchkey } from "../../src/latchkey.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";

it("answers with the same headers share one list of them, and others have their own", async () => {
  const store = memoryStore();
  const latchkey = createLatchkey({ store, tenant: "single" });
  const handler = idempotent(latchkey)(async (request) =>
    Response.json({}, { status: 201, headers: { location: new URL(request.url).pathname } }),
  );
  const stored = async (key: string, path: string): Promise<readonly HeaderPair[]> => {
    const headers = { "idempotency-key": key };
    await handler(new Request(`http://localhost${path}`, { method: "POST", headers }));
    const { record } = await store.read({ scope: "single", key });
    if (record?.state !== "completed" || record.response.kind !== "full") throw new Error("not stored");
    return record.response.headers;
  };
  const first = await stored("a", "/rides");
  expect(await stored("b", "/rides")).toBe(first);
  const other = await stored("c", "/charges");
  expect(other).toEqual([
    ["content-type", "application/json"],
    ["location", "/charges"],
  ]);
  expect(first).toContainEqual(["location", "/rides"]);
  await latchkey.close();
});

it("whoever made the headers may go on to change them", async () => {
  const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
  const gate = new Gate(latchkey);
  const captured = {
    status: 201,
    headers: [["etag", "first"]] as [string, string][],
    body: Buffer.from("{}"),
  };
  const arrive = () => {
    const request = new Request("http://localhost/rides", {
      method: "POST",
      headers: { "idempotency-key": "a" },
    });
    const body = { kind: "bytes", bytes: new Uint8Array() } as const;
    return gate.arrive(fetchRequest(request, { native: request, body: () => ({ kind: "body", body }) }));
  };
  const first = await arrive();
  if (first.kind !== "execute") throw new Error(first.kind);
  await first.exchange.finish(captured);
  for (const pair of captured.headers) pair[1] = "changed";
  const again = await arrive();
  if (again.kind !== "answer") throw new Error(again.kind);
  expect(again.answer.headers).toContainEqual(["etag", "first"]);
  await latchkey.close();
});

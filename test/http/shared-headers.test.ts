import { expect, it } from "vitest";
import { idempotent } from "../../src/adapters/fetch.ts";
import type { HeaderPair } from "../../src/core/response.ts";
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

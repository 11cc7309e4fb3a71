import { expect, it } from "vitest";
import type { RecordDetailView, RecordPageView, SessionView, StatsView } from "../../src/admin/admin.ts";
import { eve, inMemory, served } from "./admin-client.ts";

it("tells who is asking, by the token", async () => {
  const admin = await served(inMemory());
  expect(await admin.get<SessionView>("/api/session")).toEqual({ operator: "ada", mayChange: true });
  const session = await admin.ask("/api/session", { token: eve.token });
  expect(await session.json()).toEqual({ operator: "eve", mayChange: false });
});

it("lists, shows one, counts", async () => {
  const latchkey = inMemory();
  for (const key of ["a", "b", "c"]) await latchkey.run({ tenant: "acme", key, input: 1 }, () => ({ key }));
  const admin = await served(latchkey);
  const page = await admin.get<RecordPageView>("/api/records?limit=2&state=completed&tenant=acme");
  expect(page.records).toHaveLength(2);
  const rest = await admin.get<RecordPageView>(
    `/api/records?limit=2&state=completed&tenant=acme&cursor=${page.next}`,
  );
  expect([...page.records, ...rest.records].map(({ key }) => key).sort()).toEqual(["a", "b", "c"]);
  const one = await admin.get<RecordDetailView>("/api/record?scope=acme&key=a");
  expect(one.timeline.map(({ from, to }) => [from, to])).toEqual([
    ["absent", "in_progress"],
    ["in_progress", "completed"],
  ]);
  expect((await admin.get<StatsView>("/api/stats")).running).toBe(0);
});

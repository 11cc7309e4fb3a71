import { expect, it } from "vitest";
import type { DeadLetterPageView, SessionView, StatsView } from "../../src/admin/admin.ts";
import { eve, inMemory, served } from "./admin-client.ts";

it("tells who is asking, by the token", async () => {
  const admin = await served(inMemory());
  expect(await admin.get<SessionView>("/api/session")).toEqual({ operator: "ada", mayChange: true });
  const session = await admin.ask("/api/session", { token: eve.token });
  expect(await session.json()).toEqual({ operator: "eve", mayChange: false });
});

it("a store without an outbox has no dead letters, and nothing to requeue", async () => {
  const admin = await served(inMemory());
  expect((await admin.get<StatsView>("/api/stats")).outbox).toBeNull();
  expect(await admin.get<DeadLetterPageView>("/api/dead-letters")).toEqual({ deadLetters: [], next: null });
  const requeued = await admin.post("/api/dead-letters/requeue", { ids: ["1"] });
  expect(await requeued.json()).toEqual({ requeued: 0 });
});

it("the process that serves it tells of itself, under its role", async () => {
  const admin = await served(inMemory(), { role: "gateway" });
  const roles = async () => (await admin.get<StatsView>("/api/stats")).processes.map(({ role }) => role);
  await expect.poll(roles).toEqual(["gateway"]);
});

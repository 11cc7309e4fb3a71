import { Agent, request as httpRequest } from "node:http";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type App, startApp, workspace } from "../support/app.ts";
import { type SharedStore, sharedStores } from "../support/shared-stores.ts";

const processes = 4;
const duplicates = 500;
const rounds = 50;

describe.each(Object.entries(sharedStores))("four processes on one %s", (_name, start) => {
  const files = workspace();
  let shared: SharedStore;
  let apps: App[] = [];
  const agent = new Agent({ keepAlive: true, maxSockets: duplicates / processes });

  beforeAll(async () => {
    shared = await start();
    const { store } = shared;
    apps = await Promise.all(
      Array.from({ length: processes }, () => startApp({ store, ledger: files.ledger, latchkey: {} })),
    );
  }, 60_000);
  afterAll(async () => {
    agent.destroy();
    await Promise.all(apps.map((app) => app.stop()));
    files.remove();
    await shared?.stop();
  });

  it(`${duplicates} identical requests, ${rounds} rounds: one execution each, all others replay or 409`, async () => {
    for (let round = 0; round < rounds; round += 1) {
      const key = `round-${round}`;
      const answers = await Promise.all(
        Array.from({ length: duplicates }, (_, index) => charge((apps[index % processes] as App).url, key)),
      );
      const statuses = new Map<number, number>();
      for (const { status } of answers) statuses.set(status, (statuses.get(status) ?? 0) + 1);
      expect(
        [...statuses.keys()].filter((status) => status !== 201 && status !== 409),
        key,
      ).toEqual([]);
      const done = answers.filter(({ status }) => status === 201);
      expect(
        done.filter(({ isReplay }) => !isReplay),
        key,
      ).toHaveLength(1);
      expect(new Set(done.map(({ body }) => body)).size, key).toBe(1);
      expect(files.executions(key), key).toEqual([1]);
    }
  }, 150_000);

  function charge(url: string, key: string): Promise<{ status: number; isReplay: boolean; body: string }> {
    return new Promise((resolve, reject) => {
      const request = httpRequest(`${url}/charges`, {
        agent,
        method: "POST",
        headers: { "idempotency-key": key, "content-type": "application/json" },
      });
      request.on("error", reject);
      request.on("response", (response) => {
        let body = "";
        response.setEncoding("utf8");
        response.on("data", (chunk: string) => {
          body += chunk;
        });
        response.on("end", () =>
          resolve({
            status: response.statusCode ?? 0,
            isReplay: response.headers["idempotency-replayed"] === "true",
            body,
          }),
        );
      });
      request.end('{"amount":500}');
    });
  }
});

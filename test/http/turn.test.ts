import { AsyncLocalStorage } from "node:async_hooks";
import { expect, it } from "vitest";
import { idempotent } from "../../src/adapters/fetch.ts";
import { createLatchkey } from "../../src/latchkey.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";

const requestIds = new AsyncLocalStorage<string>();

function service() {
  const latchkey = createLatchkey({ store: memoryStore(), tenant: "single" });
  const log: string[] = [];
  latchkey.subscribe((event) => {
    const key = "key" in event ? event.key : "";
    if (event.type === "reserved" || event.type === "settled") {
      log.push(`${event.type} ${key} in ${requestIds.getStore()}`);
    }
  });
  const handler = idempotent(latchkey)(async () => {
    log.push(`handled in ${requestIds.getStore()}`);
    return new Response("done", { status: 201 });
  });
  const send = (key: string) =>
    requestIds.run(key, () =>
      handler(
        new Request("http://localhost/charges", { method: "POST", headers: { "idempotency-key": key } }),
      ),
    );
  return { latchkey, log, send };
}

it("requests of one turn are reserved in a row and settled in a row, each in its own asynchronous context", async () => {
  const { latchkey, log, send } = service();
  const answers = await Promise.all(["a", "b", "c"].map(send));
  expect(answers.map(({ status }) => status)).toEqual([201, 201, 201]);
  expect(log).toEqual([
    ...["a", "b", "c"].map((key) => `reserved ${key} in ${key}`),
    ...["a", "b", "c"].map((key) => `handled in ${key}`),
    ...["a", "b", "c"].map((key) => `settled ${key} in ${key}`),
  ]);
  await latchkey.close();
});

it("a replay is told of in its own asynchronous context, too", async () => {
  const { latchkey, log, send } = service();
  await Promise.all(["a", "b"].map(send));
  log.length = 0;
  const replays = await Promise.all(["a", "b"].map(send));
  expect(replays.map(({ headers }) => headers.get("idempotency-replayed"))).toEqual(["true", "true"]);
  expect(log).toEqual(["reserved a in a", "reserved b in b"]);
  await latchkey.close();
});

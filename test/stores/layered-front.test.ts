import { expect, it } from "vitest";
import { Front, type FrontLink } from "../../src/stores/layered/front.ts";

/** A front whose client answers when it is told to, and a clock that goes when it is told to. */
function front(timeoutMs: number) {
  const asked: { answer(reply: Buffer | Error): void }[] = [];
  let now = 0;
  const link: FrontLink = {
    keyPrefix: "",
    close: async () => {},
    primaries: async () => [],
    send: () =>
      new Promise((resolve, reject) => {
        asked.push({ answer: (reply) => (reply instanceof Error ? reject(reply) : resolve(reply)) });
      }),
  };
  const clocks = { steady: () => now, wall: () => 0 };
  return {
    front: new Front(link, clocks, { prefix: "p", timeoutMs }),
    asked,
    pass(ms: number) {
      now += ms;
    },
  };
}

const found = Buffer.from("found");

it("a front that always answers too late is left alone after five times, except for one look a second", async () => {
  const { front: late, asked, pass } = front(5);
  const ask = async () => {
    const before = asked.length;
    expect(await late.get("name")).toBe(undefined);
    for (const { answer } of asked.slice(before)) answer(found);
    return asked.length - before;
  };
  for (let times = 0; times < 5; times += 1) expect(await ask()).toBe(1);
  expect([await ask(), await ask()]).toEqual([0, 0]);
  pass(1_000);
  expect([await ask(), await ask()]).toEqual([1, 0]);
});

it("the first answer in time ends the pause, for reading and for writing", async () => {
  const { front: back, asked, pass } = front(1_000);
  for (let times = 0; times < 5; times += 1) {
    const got = back.get("name");
    asked.at(-1)?.answer(new Error("the connection is lost"));
    expect(await got).toBe(undefined);
  }
  back.put("name", found, 1_000);
  expect(asked).toHaveLength(5);
  pass(1_000);
  const got = back.get("name");
  asked.at(-1)?.answer(found);
  expect(await got).toEqual(found);
  back.put("name", found, 1_000);
  expect(asked).toHaveLength(7);
});

it("no more than a thousand writes are on their way; what comes on top is left", async () => {
  const { front: slow, asked } = front(1_000);
  for (let times = 0; times < 1_100; times += 1) slow.put("name", found, 1_000);
  expect(asked).toHaveLength(1_000);
  asked[0]?.answer(found);
  await new Promise((resolve) => setImmediate(resolve));
  slow.put("name", found, 1_000);
  expect(asked).toHaveLength(1_001);
});

import { expect, it } from "vitest";
import { Standing } from "../../src/stores/layered/standing.ts";

/** What is known of a truth that answers when it is told to. */
function standing() {
  const reads: { answer(generation: string | Error): Promise<void> }[] = [];
  let now = 0;
  const read = () =>
    new Promise<{ generation: string; now: number }>((resolve, reject) => {
      reads.push({
        async answer(generation) {
          if (generation instanceof Error) reject(generation);
          else resolve({ generation, now: 1_000 });
          await new Promise((turn) => setImmediate(turn));
        },
      });
    });
  const known = new Standing(read, { steady: () => now, wall: () => now });
  return {
    known,
    reads,
    pass(ms: number) {
      now += ms;
    },
  };
}

it("nothing is known before busts are heard, and while the generation is read", async () => {
  const { known, reads } = standing();
  expect(known.current()).toBe(undefined);
  expect(reads).toHaveLength(0);
  known.listening();
  expect(known.current()).toBe(undefined);
  await reads[0]?.answer("one");
  expect(known.current()?.generation).toBe("one");
});

it("a generation that was read while a bust was heard is read again", async () => {
  const { known, reads } = standing();
  known.listening();
  known.busted();
  known.busted();
  await reads[0]?.answer("one");
  expect(known.current()).toBe(undefined);
  expect(reads).toHaveLength(2);
  await reads[1]?.answer("two");
  expect(known.current()?.generation).toBe("two");
});

it("an interruption ends all knowledge, also that which is on its way", async () => {
  const { known, reads } = standing();
  known.listening();
  await reads[0]?.answer("one");
  known.busted();
  known.interrupted();
  await reads[1]?.answer("two");
  expect(known.current()).toBe(undefined);
  known.listening();
  expect(known.current()).toBe(undefined);
  await reads[2]?.answer("three");
  expect(known.current()?.generation).toBe("three");
});

it("a truth that cannot be asked, or does not answer, is asked again by and by", async () => {
  const { known, reads, pass } = standing();
  known.listening();
  await reads[0]?.answer(new Error("the truth is away"));
  known.current();
  expect(reads).toHaveLength(1);
  pass(250);
  known.current();
  expect(reads).toHaveLength(2);
  pass(4_999);
  known.current();
  expect(reads).toHaveLength(2);
  pass(1);
  known.current();
  expect(reads).toHaveLength(3);
});

it("a truth that keeps failing to tell its generation is reported once, with what it says", async () => {
  const { known, reads, pass } = standing();
  const warnings: string[] = [];
  const heard = (warning: Error) => warnings.push(warning.message);
  process.on("warning", heard);
  known.listening();
  for (let failure = 0; failure < 40; failure += 1) {
    await reads[failure]?.answer(new Error("permission denied for table latchkey_busts"));
    pass(250);
    known.current();
  }
  process.off("warning", heard);
  expect(warnings).toEqual([expect.stringMatching(/Redis is not used.*permission denied/)]);
});

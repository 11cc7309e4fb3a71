import assert from "node:assert/strict";
import { noteBytesMax } from "../../core/notes.ts";
import type { ContractCase } from "./harness.ts";
import { longMs, rounds, shortMs } from "./requests.ts";

let sequence = 0;

/** Small facts that all processes share, each changed from the version that was read. */
export const noteCases: readonly ContractCase[] = [
  {
    name: "a note is read as it was written, and what was never written is not there",
    async run({ store: { notes } }) {
      const [name, other] = [freshName(), freshName()];
      const note = { value: `{"text":"ünï 🙂 \\" ' \\\\ \\u0000"}`, version: "v-1" };
      const before = await notes.read([name, other]);
      assert.deepEqual(before.notes, [undefined, undefined]);
      const { answers } = await notes.write([{ name, expected: undefined, note }]);
      assert.deepEqual(answers, [{ kind: "written" }]);
      const after = await notes.read([other, name]);
      assert.deepEqual(after.notes, [undefined, note]);
      assert.ok(after.now >= before.now && before.now > 1_600_000_000_000);
    },
  },
  {
    name: "a note is only changed from the version that is there, and the answer says what is",
    async run({ store: { notes } }) {
      const name = freshName();
      const [first, second, third] = ["1", "2", "3"].map((text) => ({ value: text, version: `v-${text}` }));
      const write = async (expected: string | undefined, note: typeof first) =>
        (await notes.write([{ name, expected, note }])).answers[0];
      assert.deepEqual(await write("v-0", first), { kind: "conflict", note: undefined });
      assert.deepEqual(await write(undefined, first), { kind: "written" });
      assert.deepEqual(await write(undefined, second), { kind: "conflict", note: first });
      assert.deepEqual(await write("v-1", second), { kind: "written" });
      assert.deepEqual(await write("v-1", third), { kind: "conflict", note: second });
      assert.deepEqual(await write("v-1", undefined), { kind: "conflict", note: second });
      assert.deepEqual(await write("v-2", undefined), { kind: "written" });
      assert.deepEqual(await write("v-2", third), { kind: "conflict", note: undefined });
      assert.deepEqual(await write(undefined, undefined), { kind: "written" });
      assert.deepEqual(await write(undefined, third), { kind: "written" });
    },
  },
  {
    name: "notes of one call stand each on its own",
    async run({ store: { notes } }) {
      const names = Array.from({ length: 40 }, freshName);
      const taken = { value: "taken", version: "t" };
      await notes.write([{ name: names[7] as string, expected: undefined, note: taken }]);
      const { answers } = await notes.write(
        names.map((name, index) => ({
          name,
          expected: undefined,
          note: { value: `${index}`, version: `v-${index}` },
        })),
      );
      for (const [index, answer] of answers.entries()) {
        assert.deepEqual(answer, index === 7 ? { kind: "conflict", note: taken } : { kind: "written" });
      }
      const read = await notes.read(names);
      assert.deepEqual(
        read.notes.map((note) => note?.value),
        names.map((_, index) => (index === 7 ? "taken" : `${index}`)),
      );
      assert.deepEqual((await notes.read([])).notes, []);
      assert.deepEqual((await notes.write([])).answers, []);
    },
  },
  {
    name: "a note is forgotten when its time is over, and a write begins a new time",
    async run({ store: { notes }, passTime }) {
      const [short, renewed, kept] = [freshName(), freshName(), freshName()];
      await notes.write([
        { name: short, expected: undefined, note: { value: "1", version: "a" }, ttlMs: shortMs },
        { name: kept, expected: undefined, note: { value: "1", version: "a" } },
      ]);
      const changed = { value: "2", version: "b" };
      for (const _ of rounds()) {
        const first = { value: "1", version: "a" };
        await notes.write([{ name: renewed, expected: undefined, note: first, ttlMs: shortMs }]);
        const { answers } = await notes.write([
          { name: renewed, expected: "a", note: changed, ttlMs: longMs },
        ]);
        // On a machine that is busy with other things its first time may be over by now.
        if (answers[0]?.kind === "written") break;
      }
      await passTime(shortMs + 10);
      const { notes: left } = await notes.read([short, renewed, kept]);
      assert.deepEqual(left, [undefined, changed, { value: "1", version: "a" }]);
      const { answers } = await notes.write([
        { name: short, expected: "a", note: changed },
        { name: kept, expected: "a", note: changed },
      ]);
      assert.deepEqual(answers, [{ kind: "conflict", note: undefined }, { kind: "written" }]);
      const again = await notes.write([{ name: short, expected: undefined, note: changed }]);
      assert.deepEqual(again.answers, [{ kind: "written" }]);
    },
  },
  {
    name: "of many who change a note from one version, one does",
    async run({ store: { notes } }) {
      const name = freshName();
      let expected: string | undefined;
      for (let round = 0; round < 5; round += 1) {
        const attempts = await Promise.all(
          Array.from({ length: 20 }, async (_, index) => {
            const note = { value: `${round}`, version: `${round}-${index}` };
            const { answers } = await notes.write([{ name, expected, note }]);
            return answers[0]?.kind === "written" ? note.version : undefined;
          }),
        );
        const winners = attempts.filter((version) => version !== undefined);
        assert.equal(winners.length, 1);
        expected = winners[0];
        assert.equal((await notes.read([name])).notes[0]?.version, expected);
      }
    },
  },
  {
    name: "a note may be as long as is promised",
    async run({ store: { notes } }) {
      const name = `${freshName()}-`.padEnd(300, "~");
      const note = { value: "x".repeat(noteBytesMax), version: "v".repeat(40) };
      await notes.write([{ name, expected: undefined, note }]);
      assert.deepEqual((await notes.read([name])).notes, [note]);
    },
  },
];

function freshName(): string {
  sequence += 1;
  return `note:${process.pid}/${sequence}%20"'\\{}*`;
}

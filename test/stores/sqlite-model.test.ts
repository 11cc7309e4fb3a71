import { join } from "node:path";
import { it } from "vitest";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { useFolder } from "./sqlite-support.ts";
import { assertAnswersAsMemoryDoes } from "./store-model.ts";

const place = useFolder();

it("answers any sequence of calls as the memory store does", async () => {
  let runs = 0;
  await assertAnswersAsMemoryDoes(
    async (clock) => {
      runs += 1;
      // A power loss is not part of this test, and so it need not wait for the disk.
      return sqliteStore(join(place.folder, `run-${runs}.db`), { clock, synchronous: "normal" });
    },
    { numRuns: 150 },
  );
}, 60_000);

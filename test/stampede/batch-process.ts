// One of several processes that reserve the same keys at the same time, in an order of its own, and tell what they got.
import pg from "pg";
import { postgresStore } from "../../src/stores/postgres/store.ts";
import { request } from "../support/reserve-request.ts";

const [url] = process.argv.slice(2);
const pool = new pg.Pool({ connectionString: url as string, max: 4 });
const store = postgresStore(pool);

process.on("message", async ({ round, keys }: { round: number; keys: number }) => {
  const names = Array.from({ length: keys }, (_, index) => `round ${round} key ${index}`);
  shuffle(names);
  const answers = await Promise.all(
    names.map(async (key) => {
      try {
        const reservation = await store.reserve(request({ scope: "overlap", key }));
        if (reservation.kind !== "execute") return { key, kind: reservation.kind };
        const settled = await store.settle(reservation.lease, {
          kind: "complete",
          response: { kind: "full", status: 201, headers: [], body: new Uint8Array([1]) },
          retentionMs: 600_000,
        });
        return { key, kind: settled.kind === "settled" ? "executed" : settled.kind };
      } catch (error) {
        return { key, kind: String(error) };
      }
    }),
  );
  process.send?.(answers);
});
process.on("disconnect", () => process.exit());
process.send?.("ready");

function shuffle(items: unknown[]): void {
  for (let index = items.length - 1; index > 0; index -= 1) {
    const other = Math.floor(Math.random() * (index + 1));
    [items[index], items[other]] = [items[other], items[index]];
  }
}

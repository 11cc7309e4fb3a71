import type pg from "pg";
import { describe, expectTypeOf, it } from "vitest";
import type { Jsonified, Latchkey, Operation } from "../../src/index.ts";

/** Nothing here runs: it only has to compile. */
describe("the types of phases", () => {
  it("are what comes back from JSON", () => {
    expectTypeOf<Jsonified<{ at: Date; n: number; list: readonly [Date, "a"] }>>().toEqualTypeOf<{
      at: string;
      n: number;
      list: readonly [string, "a"];
    }>();
    expectTypeOf<Jsonified<undefined>>().toEqualTypeOf<undefined>();
    expectTypeOf<Jsonified<{ big: bigint }>>().toEqualTypeOf<{ big: never }>();
  });

  it("fit wherever a Latchkey is taken", () => {
    expectTypeOf<Latchkey<pg.PoolClient>>().toExtend<Latchkey>();
  });

  it("carry the transaction of the store to the work", () => {
    expectTypeOf<
      Parameters<Parameters<Operation<pg.PoolClient>["atomic"]>[1]>[0]
    >().toEqualTypeOf<pg.PoolClient>();
    expectTypeOf<Parameters<Parameters<Latchkey<pg.PoolClient>["run"]>[1]>[0]>().toEqualTypeOf<
      Operation<pg.PoolClient>
    >();
  });
});

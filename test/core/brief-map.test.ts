import { describe, expect, it } from "vitest";
import { BriefMap } from "../../src/core/brief-map.ts";
import { leftBehind } from "../support/garbage.ts";

describe("BriefMap", () => {
  it("holds what was set until it is deleted", () => {
    const map = new BriefMap<number>();
    map.set("a", 1);
    map.set("b", 2);
    map.set("a", 3);
    expect([map.get("a"), map.get("b"), map.get("c"), map.size]).toEqual([3, 2, undefined, 2]);
    expect(map.values()).toEqual([3, 2]);
    map.delete("a");
    map.delete("c");
    expect([map.get("a"), map.size]).toEqual([undefined, 1]);
    expect(map.values()).toEqual([2]);
  });

  it("lets go of what has left without a full collection of garbage", () => {
    // One of these may be disturbed by a full collection, which would make it look good. A plain Map keeps 5.5 MB.
    const bytes = [1, 2, 3].map(() => leftBehind(passing(new BriefMap<object>())));
    expect(Math.max(...bytes)).toBeLessThan(2_000_000);
  });
});

/** Brings and takes away values of 1 KB. */
function passing(map: BriefMap<object>): (index: number) => void {
  return (index) => {
    map.set(`${index}`, new Array(125).fill(index));
    map.delete(`${index - 64}`);
  };
}

import { expect, it } from "vitest";
import { BustListeners } from "../../src/stores/bust-listeners.ts";

it("those who start over are told that they may have missed something, and only if they are told anything", () => {
  const listeners = new BustListeners();
  const said: string[] = [];
  listeners.add({
    listening: () => void said.push("listening"),
    busted: (name) => void said.push(name),
    interrupted: () => void said.push("interrupted"),
  });
  listeners.startOver();
  expect(said).toEqual([]);
  listeners.listening();
  listeners.startOver();
  expect(said).toEqual(["listening", "interrupted", "listening"]);
  listeners.interrupted();
  listeners.startOver();
  expect(said).toEqual(["listening", "interrupted", "listening", "interrupted"]);
});

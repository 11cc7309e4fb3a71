import { expect, it } from "vitest";
import { pretty } from "../../src/console/words.ts";

it.each([
  {},
  [],
  null,
  "a text",
  { a: [], b: {}, c: [[]] },
  {
    nested: { list: [1, -2.5e-7, true, null, { "": 'with \\ and " and { [ , : ] }' }], deep: [[1, 2], [{}]] },
  },
  ["line\nbreak", "\u2028", "é"],
])("JSON is shown as JSON.stringify would indent it: %j", (value) => {
  expect(pretty(JSON.stringify(value))).toBe(JSON.stringify(value, undefined, 2));
  expect(pretty(JSON.stringify(value, undefined, "\t"))).toBe(JSON.stringify(value, undefined, 2));
});

it("not a digit and not a member is other than what is stored", () => {
  const stored = '{"id":9007199254740993,"amount":10.50,"huge":1e400,"2":1,"1":2,"a":1,"a":2,"\\u0041":0}';
  const shown = pretty(stored);
  expect(shown.replaceAll(/\s/g, "")).toBe(stored);
  expect(shown.split("\n")).toHaveLength(10);
});

it("what is no JSON is shown as it is", () => {
  for (const text of ["", "<b>no</b>", '{"a":', "{'a':1}", "01"]) expect(pretty(text)).toBe(text);
});

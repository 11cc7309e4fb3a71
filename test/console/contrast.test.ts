import { readFileSync } from "node:fs";
import { expect, it } from "vitest";

const css = readFileSync(new URL("../../src/console/styles/tokens.css", import.meta.url), "utf8");

/** Each colour by its name, light and dark. */
const colours = new Map(
  [...css.matchAll(/--([\w-]+): light-dark\((#\w{6}), (#\w{6})\);/g)].map(
    ([, name = "", light = "", dark = ""]) => [name, { light, dark }],
  ),
);

const grounds = ["ground", "surface", "raised"];
const texts = [...colours.keys()].filter(
  (name) => ["text", "muted", "accent", "good", "warn", "bad"].includes(name) || name.startsWith("state-"),
);

it.each(texts)("%s can be read on every ground, light and dark (AA)", (text) => {
  for (const ground of grounds) {
    for (const theme of ["light", "dark"] as const) {
      const contrast = contrastOf(colours.get(text)?.[theme], colours.get(ground)?.[theme]);
      expect({ text, ground, theme, isEnough: contrast >= 4.5 }).toEqual({
        text,
        ground,
        theme,
        isEnough: true,
      });
    }
  }
});

it.each(["accent-ground", "bad-ground"])("white can be read on %s", (ground) => {
  for (const theme of ["light", "dark"] as const) {
    expect(contrastOf("#ffffff", colours.get(ground)?.[theme])).toBeGreaterThan(4.5);
  }
});

/** As WCAG 2 defines it. */
function contrastOf(one: string | undefined, other: string | undefined): number {
  const [dark = 0, light = 0] = [luminance(one), luminance(other)].toSorted((a, b) => a - b);
  return (light + 0.05) / (dark + 0.05);
}

function luminance(colour = ""): number {
  const [red = 0, green = 0, blue = 0] = [1, 3, 5].map((at) => {
    const value = Number.parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

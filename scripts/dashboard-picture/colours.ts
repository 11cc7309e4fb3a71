import type { Panel } from "../../test/ops/dashboard.ts";

/** The names that Grafana gives to colours, a little darker than there: this ground is white. */
const named: Readonly<Record<string, string>> = {
  green: "#3f9c4d",
  "light-green": "#8cc98f",
  blue: "#3274d9",
  "light-blue": "#7fb2f5",
  "super-light-blue": "#bcd6fb",
  yellow: "#e0b400",
  "semi-dark-yellow": "#b88d00",
  orange: "#f08226",
  "light-orange": "#f7b26f",
  red: "#e02f44",
  "dark-red": "#8f1022",
  purple: "#8f3bb8",
  "light-purple": "#c79bdf",
};

const palette = [
  "#3f9c4d",
  "#e0b400",
  "#3274d9",
  "#f08226",
  "#e02f44",
  "#7fb2f5",
  "#8f3bb8",
  "#5a6b7b",
  "#0f8a8a",
  "#b0517a",
];

export function colourOf(panel: Panel, name: string, index: number): string {
  const override = panel.fieldConfig?.overrides.find(({ matcher }) => matcher.options === name);
  return (
    namedColour(override?.properties[0]?.value.fixedColor) ?? palette[index % palette.length] ?? "#000000"
  );
}

/** The colour of the highest threshold that the value has reached. */
export function thresholdColour(panel: Panel, value: number): string {
  const steps = panel.fieldConfig?.defaults.thresholds?.steps ?? [];
  const reached = steps.filter((step) => step.value === null || value >= step.value);
  return namedColour(reached.at(-1)?.color) ?? "#3f9c4d";
}

function namedColour(name: string | undefined): string | undefined {
  return name === undefined ? undefined : named[name];
}

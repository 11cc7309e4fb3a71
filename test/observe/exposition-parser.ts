/** One metric family of a page in Prometheus' text format 0.0.4. */
export interface Family {
  readonly help: string;
  readonly type: string;
  readonly samples: readonly ParsedSample[];
}

export interface ParsedSample {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

const sampleLine = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (NaN|[+-]Inf|[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?)$/;
const labelPattern = /([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(,|$)/y;
const suffixes: Readonly<Record<string, readonly string[]>> = { histogram: ["_bucket", "_sum", "_count"] };

/**
 * Reads a page as strictly as the format is written down, and throws at whatever is not in it: a family that is not
 * whole, a sample that belongs to none, the same sample twice, buckets that shrink.
 */
export function parseExposition(page: string): Map<string, Family> {
  if (!page.endsWith("\n")) throw new Error("the last line has no end");
  const families = new Map<string, { help: string; type: string; samples: ParsedSample[] }>();
  const seen = new Set<string>();
  let current: { name: string; help: string; type: string; samples: ParsedSample[] } | undefined;
  let help: { name: string; text: string } | undefined;
  for (const line of page.slice(0, -1).split("\n")) {
    const comment = /^# (HELP|TYPE) ([a-zA-Z_:][a-zA-Z0-9_:]*) (.+)$/.exec(line);
    if (comment?.[1] === "HELP") {
      help = { name: comment[2] ?? "", text: comment[3] ?? "" };
      continue;
    }
    if (comment?.[1] === "TYPE") {
      const name = comment[2] ?? "";
      const type = comment[3] ?? "";
      if (help?.name !== name) throw new Error(`${name} has a type without a help before it`);
      if (!["counter", "gauge", "histogram"].includes(type)) throw new Error(`${name} is a ${type}`);
      if (families.has(name)) throw new Error(`${name} comes twice`);
      current = { name, help: help.text, type, samples: [] };
      families.set(name, current);
      continue;
    }
    const sample = sampleLine.exec(line);
    if (sample === null || current === undefined) throw new Error(`not a line of the format: ${line}`);
    const [, name = "", labels, value = ""] = sample;
    const names = (suffixes[current.type] ?? [""]).map((suffix) => `${current?.name}${suffix}`);
    if (!names.includes(name)) throw new Error(`${name} does not belong to ${current.name}`);
    const key = `${name}{${labels ?? ""}}`;
    if (seen.has(key)) throw new Error(`${key} comes twice`);
    seen.add(key);
    current.samples.push({ name, labels: parseLabels(labels), value: numberOf(value) });
  }
  for (const [name, family] of families) {
    if (family.samples.length === 0) throw new Error(`${name} is empty`);
    if (family.type === "histogram") assertBuckets(name, family.samples);
  }
  return families;
}

function parseLabels(text: string | undefined): Record<string, string> {
  const labels: Record<string, string> = {};
  if (text === undefined) return labels;
  labelPattern.lastIndex = 0;
  while (labelPattern.lastIndex < text.length) {
    const match = labelPattern.exec(text);
    if (match === null) throw new Error(`not labels: ${text}`);
    const [, name = "", value = ""] = match;
    if (name in labels) throw new Error(`the label ${name} comes twice`);
    labels[name] = value.replace(/\\(.)/g, (_, character) => (character === "n" ? "\n" : character));
  }
  return labels;
}

function numberOf(text: string): number {
  if (text === "+Inf") return Number.POSITIVE_INFINITY;
  return text === "-Inf" ? Number.NEGATIVE_INFINITY : Number(text);
}

function assertBuckets(name: string, samples: readonly ParsedSample[]): void {
  const buckets = samples.filter((sample) => sample.name === `${name}_bucket`);
  const bounds = buckets.map(({ labels }) => numberOf(labels.le ?? "NaN"));
  const counts = buckets.map(({ value }) => value);
  const total = samples.find((sample) => sample.name === `${name}_count`)?.value;
  const ascends = (values: readonly number[]) =>
    values.every((value, at) => value >= (values[at - 1] ?? value));
  if (!ascends(bounds) || bounds.at(-1) !== Number.POSITIVE_INFINITY) throw new Error(`bounds of ${name}`);
  if (!ascends(counts) || counts.at(-1) !== total) throw new Error(`buckets of ${name}`);
}

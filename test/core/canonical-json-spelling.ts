/** The same JSON value in another spelling: members shuffled, whitespace added, characters escaped. */
export function respell(value: unknown, choices: Iterator<number>): string {
  const gap = [" ", "\n", "", "\t\r", "", "", "  ", ""][choose(choices)];
  if (typeof value === "string") return gap + respellString(value, choices);
  if (typeof value !== "object" || value === null) return gap + JSON.stringify(value) + gap;
  if (Array.isArray(value)) return `[${gap}${value.map((item) => respell(item, choices)).join(`${gap},`)}]`;
  const members = Object.entries(value).map(
    ([name, member]) => `${respellString(name, choices)}${gap}:${respell(member, choices)}`,
  );
  const pivot = members.length === 0 ? 0 : choose(choices) % members.length;
  return `{${[...members.slice(pivot), ...members.slice(0, pivot).reverse()].join(`${gap},`)}${gap}}`;
}

/** Some characters as escapes, some as themselves. */
export function respellString(value: string, choices: Iterator<number>): string {
  const spelled = [...value].map((character) => {
    if (choose(choices) > 3) return JSON.stringify(character).slice(1, -1);
    return Array.from(
      { length: character.length },
      (_, i) => `\\u${character.charCodeAt(i).toString(16).padStart(4, "0")}`,
    ).join("");
  });
  return `"${spelled.join("")}"`;
}

function choose(choices: Iterator<number>): number {
  return choices.next().value ?? 0;
}

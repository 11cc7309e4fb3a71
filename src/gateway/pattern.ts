/** A route's path: literal segments, `:name` for any one, and `*` at the end for one or more. */
export interface PathPattern {
  readonly text: string;
  readonly segments: readonly Segment[];
  readonly isOpen: boolean;
}

type Segment = { readonly kind: "literal"; readonly text: string } | { readonly kind: "any" };

export function parsePattern(text: string): PathPattern {
  const parts = text === "/" ? [] : text.slice(1).split("/");
  const isOpen = parts.at(-1) === "*";
  const segments = (isOpen ? parts.slice(0, -1) : parts).map(
    (part): Segment => (part.startsWith(":") ? { kind: "any" } : { kind: "literal", text: part }),
  );
  return { text, segments, isOpen };
}

/** Whether the segments of a path are what the pattern says. */
export function matches(
  pattern: PathPattern,
  segments: readonly string[],
  fold: (text: string) => string,
): boolean {
  const { segments: expected, isOpen } = pattern;
  if (isOpen ? segments.length <= expected.length : segments.length !== expected.length) return false;
  return expected.every((one, index) => one.kind === "any" || fold(one.text) === fold(segments[index] ?? ""));
}

/** Whether one pattern takes everything that another one could. */
export function covers(pattern: PathPattern, other: PathPattern, fold: (text: string) => string): boolean {
  if (pattern.isOpen) {
    // The rest of the other one has to be at least one segment.
    const least = other.segments.length + (other.isOpen ? 1 : 0);
    if (least <= pattern.segments.length) return false;
  } else if (other.isOpen || other.segments.length !== pattern.segments.length) return false;
  return pattern.segments.every((one, index) => {
    if (one.kind === "any") return true;
    const another = other.segments[index];
    return another?.kind === "literal" && fold(another.text) === fold(one.text);
  });
}

import {
  isAlias,
  isCollection,
  isMap,
  isPair,
  isScalar,
  isSeq,
  LineCounter,
  type Node,
  parseDocument,
  visit,
} from "yaml";
import type { ConfigProblem, MemberPath } from "./problems.ts";

/** Where the text of a configuration came from, and what stands in it. */
export interface ConfigDocument {
  /** What stands in it, with variables put in; undefined if it cannot be read at all. */
  readonly value: unknown;
  readonly problems: readonly ConfigProblem[];
  /** `gateway.yaml:12:5` of a member's value, or of its name. A member that is missing is at what it belongs to. */
  place(path: MemberPath, at?: "name" | "value"): string;
  /** Whether a value came out of the environment, so that it must not be shown. */
  isSecret(value: unknown): boolean;
}

/** Stands where a variable is not set, so that whoever reads on does not complain about the same member again. */
const missingMark = "\u0000";

/** Whether it has been said already what is wrong with a value. */
export function isMissingVariable(value: unknown): boolean {
  return typeof value === "string" && value.includes(missingMark);
}

export type Environment = Readonly<Record<string, string | undefined>>;

const textBytesMax = 1024 * 1024; // A thousand routes need a tenth of it.
const aliasCountMax = 100; // What aliases may be expanded to; a bomb needs millions.

/** Reads YAML, and says everything that is wrong with it as YAML. */
export function readDocument(file: string, text: string, env: Environment): ConfigDocument {
  const lines = new LineCounter();
  const problems: ConfigProblem[] = [];
  const secrets = new Set<string>();
  const at = (offset: number) => {
    const { line, col } = lines.linePos(offset);
    return `${file}:${Math.max(line, 1)}:${Math.max(col, 1)}`;
  };
  const complain = (place: string, sentence: string, path: MemberPath = []) =>
    problems.push({ severity: "error", place, path, sentence });
  const unreadable = (): ConfigDocument => ({
    value: undefined,
    problems,
    place: () => `${file}:1:1`,
    isSecret: () => false,
  });

  if (Buffer.byteLength(text) > textBytesMax) {
    complain(`${file}:1:1`, `the file has more than ${textBytesMax} bytes: it is not a configuration`);
    return unreadable();
  }
  const document = parseDocument(text, {
    lineCounter: lines,
    prettyErrors: false,
    uniqueKeys: true,
    stringKeys: true,
  });
  // What YAML only warns of, a tag that nobody knows, would be read as something else than was meant.
  for (const { pos, message } of [...document.errors, ...document.warnings]) {
    complain(at(pos[0]), yamlSentence(message));
  }
  // A member that is there twice is read well enough to find what else is wrong.
  if (document.errors.some(({ code }) => code !== "DUPLICATE_KEY")) return unreadable();

  visit(document, {
    Scalar(_, node, ancestors) {
      if (typeof node.value !== "string" || !node.value.includes("${")) return;
      const path = pathOf(ancestors, node);
      if (path === undefined) return;
      const { filled, missing, isTouched } = substituted(node.value, env);
      for (const name of missing) {
        complain(
          at(node.range?.[0] ?? 0),
          `names the environment variable ${name}, which is not set: set it, or write $\${${name}} for the text itself`,
          path,
        );
      }
      if (isTouched) secrets.add(filled);
      node.value = filled;
    },
  });

  let value: unknown;
  try {
    value = document.toJS({ maxAliasCount: aliasCountMax });
  } catch (error) {
    complain(
      `${file}:1:1`,
      error instanceof ReferenceError && /alias count/i.test(error.message)
        ? `its aliases expand to more than ${aliasCountMax} copies: write out what they stand for`
        : `cannot be read (${error instanceof Error ? error.message : error})`,
    );
    return unreadable();
  }

  return {
    value: value ?? {},
    problems,
    place: (path, part = "value") => at(offsetOf(document.contents, path, part)),
    // By value: an alias has the same one at another place.
    isSecret: (one) => typeof one === "string" && secrets.has(one),
  };
}

/** The text with every `${NAME}` put in; `$${NAME}` stands for itself. */
function substituted(text: string, env: Environment) {
  const missing: string[] = [];
  let isTouched = false;
  const filled = text.replaceAll(/\$(\$?)\{([^}]*)\}/g, (whole, escaping: string, name: string) => {
    if (escaping !== "") return whole.slice(1);
    isTouched = true;
    const value = env[name];
    if (value === undefined || value === "") missing.push(name);
    return value || missingMark;
  });
  return { filled, missing, isTouched };
}

/** The members that lead to a scalar; undefined for the name of a member. */
function pathOf(ancestors: readonly unknown[], node: Node): (string | number)[] | undefined {
  const path: (string | number)[] = [];
  const chain = [...ancestors, node];
  for (const [index, one] of chain.entries()) {
    const next = chain[index + 1];
    if (isPair(one)) {
      if (next === one.key) return undefined;
      path.push(isScalar(one.key) ? String(one.key.value) : "");
    } else if (isSeq(one)) path.push(one.items.indexOf(next));
  }
  return path;
}

function offsetOf(root: unknown, path: MemberPath, part: "name" | "value"): number {
  let node = root;
  let offset = startOf(root);
  for (const [index, member] of path.entries()) {
    if (isAlias(node)) return offset;
    if (!isCollection(node)) return offset;
    if (isMap(node)) {
      const pair = node.items.find(({ key }) => isScalar(key) && String(key.value) === String(member));
      if (pair === undefined) return offset;
      const isNamed = part === "name" && index === path.length - 1;
      offset = isNamed || !hasStart(pair.value) ? startOf(pair.key) : startOf(pair.value);
      node = pair.value;
    } else {
      const item = isSeq(node) ? node.items[Number(member)] : undefined;
      if (item === undefined) return offset;
      offset = startOf(item);
      node = item;
    }
  }
  return offset;
}

function hasStart(node: unknown): boolean {
  return (node as { range?: unknown } | null)?.range != null;
}

function startOf(node: unknown): number {
  return (node as { range?: [number, number, number] } | null)?.range?.[0] ?? 0;
}

/** The parser's own words, with what to do where that is not plain. */
function yamlSentence(message: string): string {
  const plain = message.replaceAll(/\s+/g, " ").trim();
  if (/^Map keys must be unique/.test(plain)) return "this member is written twice: remove one of them";
  if (/multiple documents/i.test(plain)) return "the file has more than one YAML document: keep one";
  if (/Unresolved tag/i.test(plain)) return "has a YAML tag, which means nothing here: write the plain value";
  return `is not YAML: ${plain}`;
}

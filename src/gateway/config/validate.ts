import * as v from "valibot";
import { nearest } from "../../core/nearest.ts";
import { isMissingVariable } from "./document.ts";
import type { MemberPath } from "./problems.ts";
import { type GatewayConfig, gatewaySchema } from "./schema.ts";

/** What one member must be and is not. */
export interface Complaint {
  readonly path: MemberPath;
  readonly sentence: string;
  /** Whether the member's name is what is wrong. */
  readonly isAboutName: boolean;
}

/** The configuration, or everything that keeps its members from being what they must be. */
export function validated(
  value: unknown,
  isSecret: (value: unknown) => boolean,
): { readonly config: GatewayConfig | undefined; readonly complaints: readonly Complaint[] } {
  const complaints: Complaint[] = [];
  const rest = structuredClone(value);
  // To the library a list is a map with numbers for names.
  for (const path of listsForMaps(value)) {
    complaints.push({ path, sentence: "is a list and must be a map of members", isAboutName: false });
    if (path.length === 0) return { config: undefined, complaints };
    remove(rest, path);
  }
  // The library names only the first stranger of each map, so each is taken out and the rest is looked at again.
  for (let rounds = 0; rounds < roundsMax; rounds += 1) {
    // One sentence for each member: the rest of its rules would say the same of it.
    const result = v.safeParse(gatewaySchema, rest, { abortPipeEarly: true });
    if (result.success) return { config: complaints.length === 0 ? result.output : undefined, complaints };
    const issues = result.issues.flatMap((issue) => flattened(issue, []));
    const strangers = issues.filter(({ issue }) => isStranger(issue));
    for (const { path } of strangers) {
      complaints.push({ path, sentence: strangerSentence(path), isAboutName: true });
      remove(rest, path);
    }
    if (strangers.length > 0) continue;
    for (const { issue, path } of issues) {
      if (isMissingVariable(issue.input)) continue;
      complaints.push({ path, sentence: sentenceOf(issue, path, isSecret), isAboutName: false });
    }
    break;
  }
  return { config: undefined, complaints };
}

const roundsMax = 200;
const namesShownMax = 12;

interface Located {
  readonly issue: v.BaseIssue<unknown>;
  readonly path: MemberPath;
}

/** What is wrong inside of the alternative that was meant, in place of "none of these". */
function flattened(issue: v.BaseIssue<unknown>, above: MemberPath): Located[] {
  const path = [...above, ...(issue.path ?? []).map(({ key }) => key as string | number)];
  if (issue.type !== "union" || typeof issue.input !== "object" || issue.input === null)
    return [{ issue, path }];
  const inside = (issue.issues ?? []).filter((one) => (one.path?.length ?? 0) > 0);
  if (inside.length === 0) return [{ issue, path }];
  return inside.flatMap((one) => flattened(one, path));
}

function isStranger(issue: v.BaseIssue<unknown>): boolean {
  return issue.type === "strict_object" && issue.expected === "never";
}

function strangerSentence(path: MemberPath): string {
  const name = String(path.at(-1));
  const known = knownMembers(gatewaySchema, path.slice(0, -1));
  const meant = nearest(name, known);
  if (meant !== undefined) return `is not a member here: did you mean ${meant}?`;
  const shownNames = known.length > namesShownMax ? [...known.slice(0, namesShownMax), "…"] : known;
  return `is not a member here: there ${known.length === 1 ? "is" : "are"} ${shownNames.join(", ")}`;
}

function sentenceOf(
  issue: v.BaseIssue<unknown>,
  path: MemberPath,
  isSecret: (value: unknown) => boolean,
): string {
  const { input, message } = issue;
  if (issue.type === "strict_object" && input === undefined) {
    return missingSentences[String(path.at(-1))] ?? "is missing: add it";
  }
  if (input === null) return `has no value and ${message.startsWith("must") ? message : `must have one`}`;
  const isShort = ["string", "number", "boolean"].includes(typeof input);
  if (!message.startsWith("must")) return message.startsWith("is ") ? message : `cannot be used: ${message}`;
  if (!isShort) return `is ${Array.isArray(input) ? "a list" : "a map"} and ${message}`;
  if (isSecret(input) || secretNames.has(String(path.findLast((part) => typeof part === "string")))) {
    return `has a value that ${message}`.replace("that must", "that cannot be used: it must");
  }
  return `is ${shown(input)} and ${message}`;
}

/** Whatever is written there is nobody's business. */
const secretNames = new Set(["secret", "secrets", "token", "hashKeys", "store"]);

const missingSentences: Readonly<Record<string, string>> = {
  upstream: "is missing: say where the service is, such as http://127.0.0.1:3000",
  tenant:
    'is missing: say who calls, "header:NAME", "jwt:CLAIM", or "single" if everybody may share one key space',
};

function shown(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  return text.length > 60 ? `${text.slice(0, 57)}…` : text;
}

/** Where lists stand in the place of maps. */
function listsForMaps(value: unknown, path: MemberPath = []): MemberPath[] {
  if (typeof value !== "object" || value === null) return [];
  if (Array.isArray(value) && expectsMap(gatewaySchema, path)) return [path];
  return Object.entries(value).flatMap(([name, member]) =>
    listsForMaps(member, [...path, Array.isArray(value) ? Number(name) : name]),
  );
}

function expectsMap(schema: unknown, path: MemberPath): boolean {
  const at = schemasAt(schema, path);
  return (
    at.some(({ type }) => type === "strict_object" || type === "record") &&
    !at.some(({ type }) => type === "array")
  );
}

/** The names of the members that a map has at a place of the schema. */
function knownMembers(schema: unknown, path: MemberPath): string[] {
  return schemasAt(schema, path).flatMap(({ entries }) => Object.keys(entries ?? {}));
}

/** What may stand at a place: one schema, or the alternatives. */
function schemasAt(schema: unknown, path: MemberPath): AnySchema[] {
  const one = schema as AnySchema;
  if (one.type === "optional") return schemasAt(one.wrapped, path);
  if (one.type === "union") return (one.options ?? []).flatMap((option) => schemasAt(option, path));
  const [next, ...rest] = path;
  if (next === undefined) return [one];
  const inner = one.entries?.[next] ?? one.item ?? one.value;
  return inner === undefined ? [] : schemasAt(inner, rest);
}

interface AnySchema {
  readonly type: string;
  readonly wrapped?: unknown;
  readonly options?: readonly unknown[];
  readonly entries?: Readonly<Record<string, unknown>>;
  readonly item?: unknown;
  readonly value?: unknown;
}

function remove(value: unknown, path: MemberPath): void {
  const holder = path
    .slice(0, -1)
    .reduce<unknown>((at, part) => (at as Record<string, unknown>)[part], value);
  delete (holder as Record<string, unknown>)[String(path.at(-1))];
}

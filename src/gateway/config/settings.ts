import { readFile } from "node:fs/promises";
import { crossChecks } from "./cross-checks.ts";
import { type ConfigDocument, type Environment, isMissingVariable, readDocument } from "./document.ts";
import type { Finding } from "./findings.ts";
import { jwksFileChecks, jwksPath } from "./jwks-file.ts";
import { type ConfigProblem, GatewayConfigError, type MemberPath } from "./problems.ts";
import { readablePart } from "./readable.ts";
import type { GatewayConfig } from "./schema.ts";
import { type Complaint, validated } from "./validate.ts";

/** What the command line says; each takes the place of what the file says. */
export interface GatewayFlags {
  readonly upstream?: string | undefined;
  readonly port?: number | undefined;
  readonly host?: string | undefined;
  readonly store?: string | undefined;
  readonly tenant?: string | undefined;
  /** The path of the configuration file. */
  readonly config?: string | undefined;
}

/** A configuration that was checked, and what it was made from. */
export interface GatewaySettings {
  readonly config: GatewayConfig;
  /** The file, for messages; undefined if there is none. */
  readonly file: string | undefined;
  /** What is probably not meant. */
  readonly warnings: readonly ConfigProblem[];
}

/** What `--check` has found. Nothing was opened for it but the configuration's own files. */
export interface GatewayCheck {
  /** Undefined if there are errors. */
  readonly settings: GatewaySettings | undefined;
  readonly errors: readonly ConfigProblem[];
  readonly warnings: readonly ConfigProblem[];
}

/**
 * Reads flags and file, and throws one {@link GatewayConfigError} with everything that is wrong.
 *
 * @example
 * ```ts
 * const gateway = await startGateway(await readSettings({ config: "gateway.yaml", port: 8080 }));
 * ```
 */
export async function readSettings(
  flags: GatewayFlags,
  env: Environment = process.env,
): Promise<GatewaySettings> {
  const { settings, errors } = await checkGateway(flags, env);
  if (settings === undefined) throw new GatewayConfigError(errors);
  return settings;
}

/** Everything that can be told about a configuration without opening a port or asking a store. */
export async function checkGateway(
  flags: GatewayFlags,
  env: Environment = process.env,
): Promise<GatewayCheck> {
  const file = flags.config;
  if (file === undefined) return checkText({ flags, text: "", file: undefined, env });
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (problem) {
    const why =
      (problem as NodeJS.ErrnoException).code === "ENOENT" ? "there is no such file" : String(problem);
    const sentence = `cannot be read: ${why}`;
    return {
      settings: undefined,
      errors: [{ severity: "error", place: file, path: [], sentence }],
      warnings: [],
    };
  }
  const found = lookedAt({ flags, text, file, env });
  const { jwksFile } = found;
  return concluded(jwksFile === undefined ? found : found.with(await jwksFileChecks(jwksFile)));
}

/** What a configuration is made from. */
interface Source {
  readonly flags?: GatewayFlags;
  readonly text: string;
  readonly file: string | undefined;
  readonly env?: Environment;
}

/** The same for a configuration that is at hand; no other file is read. */
export function checkText(source: Source): GatewayCheck {
  return concluded(lookedAt(source));
}

/** What was found so far, in no order. */
interface Looked {
  /** Undefined if a member is not what it must be. */
  readonly config: GatewayConfig | undefined;
  readonly file: string | undefined;
  readonly problems: readonly ConfigProblem[];
  /** The path of the file with public keys, if one is named. */
  readonly jwksFile: string | undefined;
  /** The same, with what was found elsewhere. */
  with(findings: readonly Finding[]): Looked;
}

function lookedAt({ flags = {}, text, file, env = process.env }: Source): Looked {
  const document = readDocument(file ?? "", text, env);
  const given = overlaid(document.value, flags);
  const place = placesOf(document, flags, file);
  const placed = ({ severity, path, sentence }: Finding): ConfigProblem => ({
    severity,
    path,
    sentence,
    place: place(path, "value"),
  });
  const unreadable = document.value === undefined;
  const { config, complaints } = unreadable
    ? { config: undefined, complaints: [] }
    : validated(given, document.isSecret);
  const readable = config === undefined && !unreadable ? readablePart(given) : { config, removed: [] };
  const isKnown = ({ path }: Finding) =>
    !readable.removed.some((gone) => isRelated(path, gone)) && !isMissingVariable(memberAt(given, path));
  const between = readable.config === undefined ? [] : crossChecks(readable.config).filter(isKnown);
  const named = memberAt(given, ["jwt", "jwksFile"]);
  const isNamed = typeof named === "string" && named !== "" && !isMissingVariable(named);
  const jwksFile = isNamed ? jwksPath(named, file) : undefined;
  const withProblems = (problems: readonly ConfigProblem[]): Looked => ({
    config: config?.jwt === undefined ? config : { ...config, jwt: { ...config.jwt, jwksFile } },
    file,
    problems,
    jwksFile,
    with: (findings) => withProblems([...problems, ...findings.map(placed)]),
  });
  return withProblems([
    ...document.problems,
    ...complaints.map((complaint) => complaintAt(complaint, place)),
    ...between.map(placed),
  ]);
}

/** Everything in the order of the lines, and the settings if nothing is wrong. */
function concluded({ config, file, problems }: Looked): GatewayCheck {
  const sorted = problems.toSorted((a, b) => comparePlaces(a.place, b.place));
  const errors = sorted.filter(({ severity }) => severity === "error");
  const warnings = sorted.filter(({ severity }) => severity === "warning");
  if (errors.length > 0 || config === undefined) return { settings: undefined, errors, warnings };
  return { settings: { config, file, warnings }, errors, warnings };
}

type PlaceOf = (path: MemberPath, part: "name" | "value") => string;

function complaintAt({ path, sentence, isAboutName }: Complaint, place: PlaceOf): ConfigProblem {
  return { severity: "error", path, sentence, place: place(path, isAboutName ? "name" : "value") };
}

/** Flags come after the file, member by member. */
function overlaid(value: unknown, flags: GatewayFlags): unknown {
  const { upstream, port, host, store, tenant } = flags;
  if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
  const file = value as { readonly upstream?: unknown; readonly listen?: unknown };
  const listen = { ...(port === undefined ? {} : { port }), ...(host === undefined ? {} : { host }) };
  const hasMap = (section: unknown): section is object =>
    typeof section === "object" && section !== null && !Array.isArray(section);
  return {
    ...file,
    ...(upstream === undefined
      ? {}
      : { upstream: hasMap(file.upstream) ? { ...file.upstream, url: upstream } : upstream }),
    ...(Object.keys(listen).length === 0
      ? {}
      : { listen: hasMap(file.listen) ? { ...file.listen, ...listen } : listen }),
    ...(store === undefined ? {} : { store }),
    ...(tenant === undefined ? {} : { tenant }),
  };
}

function placesOf(document: ConfigDocument, flags: GatewayFlags, file: string | undefined): PlaceOf {
  const flagOf: Readonly<Record<string, keyof GatewayFlags>> = {
    upstream: "upstream",
    "upstream.url": "upstream",
    "listen.port": "port",
    "listen.host": "host",
    store: "store",
    tenant: "tenant",
  };
  return (path, part) => {
    const flag = flagOf[path.join(".")];
    if (flag !== undefined && flags[flag] !== undefined) return `--${flag}`;
    return file === undefined ? "command line" : document.place(path, part);
  };
}

function memberAt(value: unknown, path: MemberPath): unknown {
  return path.reduce<unknown>((at, part) => (at as Record<string, unknown> | undefined)?.[part], value);
}

/** Whether one path leads through the other's end. */
function isRelated(path: MemberPath, other: MemberPath): boolean {
  const length = Math.min(path.length, other.length);
  return path.slice(0, length).join("\n") === other.slice(0, length).join("\n");
}

/** In the order of the lines. */
function comparePlaces(a: string, b: string): number {
  const at = (place: string) => place.split(":").slice(-2).map(Number);
  const [lineA = 0, columnA = 0] = at(a);
  const [lineB = 0, columnB = 0] = at(b);
  return lineA - lineB || columnA - columnB || 0;
}

import { readFile } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { crossChecks } from "./cross-checks.ts";
import { type ConfigDocument, type Environment, isMissingVariable, readDocument } from "./document.ts";
import type { Finding } from "./findings.ts";
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
  const check = checkText({ flags, text, file, env });
  return withJwksFile(check);
}

/** The same for a configuration that is at hand. */
export function checkText(source: {
  readonly flags?: GatewayFlags;
  readonly text: string;
  readonly file: string | undefined;
  readonly env?: Environment;
}): GatewayCheck {
  const { flags = {}, text, file, env = process.env } = source;
  const document = readDocument(file ?? "", text, env);
  const given = overlaid(document.value, flags);
  const place = placesOf(document, flags, file);
  const problems: ConfigProblem[] = [...document.problems];
  const unreadable = document.value === undefined;

  const { config, complaints } = unreadable
    ? { config: undefined, complaints: [] }
    : validated(given, document.isSecret);
  problems.push(...complaints.map((complaint) => complaintAt(complaint, place)));
  const readable = config === undefined && !unreadable ? readablePart(given) : { config, removed: [] };
  if (readable.config !== undefined) {
    const isKnown = ({ path }: Finding) =>
      !readable.removed.some((gone) => isRelated(path, gone)) && !isMissingVariable(memberAt(given, path));
    problems.push(
      ...crossChecks(readable.config)
        .filter(isKnown)
        .map(({ severity, path, sentence }) => ({ severity, path, sentence, place: place(path, "value") })),
    );
  }

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

/** A file of public keys is read at the start, and so it is looked at here. */
async function withJwksFile(check: GatewayCheck): Promise<GatewayCheck> {
  const { settings } = check;
  const jwksFile = settings?.config.jwt?.jwksFile;
  if (settings === undefined || jwksFile === undefined) return check;
  const path = resolve(dirname(settings.file ?? "."), jwksFile);
  try {
    const { keys } = JSON.parse(await readFile(path, "utf8")) as { readonly keys?: unknown };
    if (!Array.isArray(keys)) throw new Error("it has no list of keys");
    const jwt = { ...settings.config.jwt, jwksFile: path } as GatewayConfig["jwt"];
    return { ...check, settings: { ...settings, config: { ...settings.config, jwt } } };
  } catch (problem) {
    const why = problem instanceof SyntaxError ? "it is not JSON" : (problem as Error).message;
    const sentence = `cannot be used: ${why}`;
    const found: ConfigProblem = {
      severity: "error",
      place: settings.file ?? "command line",
      path: ["jwt", "jwksFile"],
      sentence,
    };
    return { settings: undefined, errors: [found], warnings: check.warnings };
  }
}

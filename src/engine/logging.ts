import { ConfigError } from "../core/errors.ts";
import { digestOf, shownTenant } from "../core/pseudonym.ts";
import { tenantScopeOf } from "../core/scope.ts";
import type { EventListener } from "./events.ts";
import { type LogLevel, logLineOf, type Shown } from "./log-lines.ts";
import { Repeats } from "./repeats.ts";
import type { Runtime } from "./runtime.ts";

/** What is needed of a logger: pino's shape, with the fields first. */
export type Logger = { [Level in LogLevel]: (fields: object, message: string) => void };

/** Whether keys and scopes are logged as they are, or as digests of them. */
export type LogKeys = "plain" | "digest";

const levels: readonly LogLevel[] = ["debug", "info", "warn", "error"];

/** Logs a line for everything that is out of the ordinary, and none for a request that went well. */
export function eventLog(
  options: { readonly logger: Logger; readonly logKeys?: LogKeys | undefined },
  runtime: Runtime,
): EventListener {
  const { logger, logKeys = "plain" } = options;
  const lacking = levels.find((level) => typeof logger?.[level] !== "function");
  if (lacking !== undefined) {
    throw new ConfigError(
      `logger has no ${lacking}(fields, message): pass one of pino's shape, such as pino()`,
    );
  }
  if (logKeys !== "plain" && logKeys !== "digest") {
    throw new ConfigError(`logKeys is "${logKeys}" and must be "plain" or "digest"`);
  }
  const shown = logKeys === "plain" ? plain : digests;
  const repeats = new Repeats(runtime);
  return (event) => {
    const line = logLineOf(event, shown);
    if (line === undefined) return;
    const { level, fields, message, kind } = line;
    const again = (times: number) => logger[level]({ ...fields, times }, `${message}, again and again`);
    if (kind === undefined || repeats.isFirst(kind, again)) logger[level](fields, message);
  };
}

/** As they are; but a tenant that looks like a person is nobody's business. */
const plain: Shown = {
  key: (key) => key,
  scope(scope) {
    const tenant = tenantScopeOf(scope);
    return shownTenant(tenant) + scope.slice(tenant.length);
  },
  tenant: shownTenant,
};

const digests: Shown = { key: digestOf, scope: digestOf, tenant: digestOf };

import type { Logger } from "../engine/logging.ts";
import type { Secrets } from "./secrets.ts";

/** One line of JSON for each, on stderr: what collectors of logs read. */
export function jsonLog(secrets: Secrets): Logger {
  const at = (level: keyof Logger) => (fields: object, message: string) => {
    const line = JSON.stringify({ time: new Date().toISOString(), level, message, ...fields });
    process.stderr.write(`${secrets.hidden(line)}\n`);
  };
  return { debug: at("debug"), info: at("info"), warn: at("warn"), error: at("error") };
}

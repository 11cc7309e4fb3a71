import type { Logger } from "../engine/logging.ts";

/** One line of JSON for each, to stderr: what a supervisor collects. */
export function jsonLogger(write: (line: string) => void = (line) => process.stderr.write(line)): Logger {
  const at = (level: string) => (fields: object, message: string) =>
    write(`${JSON.stringify({ time: new Date().toISOString(), level, message, ...fields })}\n`);
  return { debug: () => {}, info: at("info"), warn: at("warn"), error: at("error") };
}

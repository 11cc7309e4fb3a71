import { fork } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";

/**
 * Starts a program of `processes/` and waits for the first thing that it says.
 *
 * @template Message
 * @param {string} name of its file
 * @param {readonly string[]} args
 * @returns {Promise<{ child: import("node:child_process").ChildProcess, message: Message, exit: Promise<unknown> }>}
 */
export async function startChild(name, args) {
  const child = fork(fileURLToPath(new URL(`../processes/${name}`, import.meta.url)), args, {
    env: { ...process.env, NODE_ENV: "production" },
    serialization: "advanced", // What took for ever is Infinity, which JSON does not know.
  });
  const exit = once(child, "exit");
  const [message] = await Promise.race([
    once(child, "message"),
    exit.then(() => Promise.reject(new Error(`${name} ended before it had begun`))),
  ]);
  return { child, message, exit };
}

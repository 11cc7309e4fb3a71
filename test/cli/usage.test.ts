import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { commands } from "../../src/cli/commands.ts";
import { CommandLine } from "./command-line.ts";

let latchkey: CommandLine;
beforeAll(async () => {
  latchkey = await CommandLine.bundled();
});
afterAll(() => latchkey.remove());

describe("help", () => {
  it("lists every command, and each tells its synopsis, options, defaults and examples", async () => {
    const overview = await latchkey.run(["help"]);
    expect(overview).toMatchObject({ code: 0, stderr: "" });
    for (const { name, summary } of commands) {
      expect(overview.stdout).toContain(`  ${name} `);
      expect(overview.stdout).toContain(summary);
    }
    await Promise.all(
      commands.map(async ({ name, options, examples }) => {
        const { code, stdout, stderr } = await latchkey.run([name, "--help"]);
        expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
        expect(stdout).toMatch(`usage: latchkey ${name}`);
        for (const [option, { byDefault }] of Object.entries(options)) {
          expect(stdout).toContain(`--${option}`);
          if (byDefault !== undefined)
            expect(stdout.replace(/\s+/g, " ")).toContain(`Default: ${byDefault}.`);
        }
        for (const { command } of examples) expect(stdout).toContain(command);
      }),
    );
  });

  it("is asked for in three ways, and even beside what is wrong", async () => {
    const [flag, short, word, beside] = await Promise.all([
      latchkey.run(["list", "--help"]),
      latchkey.run(["list", "-h"]),
      latchkey.run(["help", "list"]),
      latchkey.run(["list", "--limit", "many", "--help"]),
    ]);
    expect(flag.code).toBe(0);
    expect([short, word, beside]).toEqual([flag, flag, flag]);
  });

  it("--version says which one this is", async () => {
    const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8"));
    expect(await latchkey.run(["--version"])).toEqual({ code: 0, stdout: `${version}\n`, stderr: "" });
    const { stdout } = await latchkey.run(["--version", "--json"]);
    expect(JSON.parse(stdout)).toEqual({ version });
  });
});

describe("what cannot be meant is refused with exit code 2, and says what to write instead", () => {
  const cases: Readonly<Record<string, readonly [args: readonly string[], said: RegExp]>> = {
    "no command at all": [[], /which command\?/],
    "an unknown command": [["lst"], /there is no command "lst" \(did you mean list\?\)/],
    "a command like none": [["frobnicate"], /there is no command "frobnicate": see latchkey help/],
    "an option before the command": [["--store", "memory:", "list"], /options come after the command/],
    "an unknown option": [
      ["list", "--stat", "unknown"],
      /list has no option --stat \(did you mean --state\?\)/,
    ],
    "an option of another command": [["stats", "--executed"], /stats has no option --executed/],
    "an option that every object has": [["list", "--constructor"], /list has no option --constructor/],
    "an unknown short option": [["list", "-x"], /list has no option -x/],
    "a value that is missing": [["list", "--state"], /--state needs a value: --state STATE/],
    "an option in place of a value": [["list", "--store", "--json"], /--store needs a value/],
    "a value for a flag": [["list", "--all=yes"], /--all takes no value/],
    "an option given twice": [["list", "--limit", "1", "--limit", "2"], /--limit was given twice/],
    "a value that is none of the choices": [
      ["list", "--state", "done"],
      /must be one of: pending, in_progress/,
    ],
    "a number that is none": [
      ["list", "--limit", "1e3"],
      /--limit is "1e3" and must be a whole number from 1 to 1000/,
    ],
    "a number out of range": [["list", "--limit", "0"], /from 1 to 1000/],
    "a time that is none": [["list", "--since", "yesterday"], /--since is "yesterday" and must be a time/],
    "an argument too few": [["inspect"], /inspect needs KEY/],
    "an argument too many": [["inspect", "a", "b"], /does not know what to do with "b"/],
    "an argument that is not known": [["dead-letters", "requeu"], /did you mean requeue\?/],
    "a shell that is not known": [["completion", "tcsh"], /it takes bash, zsh, fish/],
    "no store": [["list"], /which store\? Pass --store URL, or set LATCHKEY_STORE/],
    "a store of no kind": [["list", "--store", "mongodb://db"], /there is no store for "mongodb:" URLs/],
    "a store in memory": [["list", "--store", "memory:"], /lives within one process/],
    "a flag for another store": [["list", "--store", "redis://h", "--distributed"], /postgres:\/\//],
    "no verdict": [["resolve", "k", "--store", "sqlite:x.db"], /needs one verdict/],
    "two verdicts": [["resolve", "k", "--executed", "--resume"], /needs one verdict/],
    "a verdict without its status": [["resolve", "k", "--executed"], /--status N/],
    "what belongs to another verdict": [
      ["resolve", "k", "--not-executed", "--status", "200"],
      /leave it out/,
    ],
    "a status that is none": [["resolve", "k", "--executed", "--status", "99"], /from 200 to 599/],
    "a header that is none": [
      ["resolve", "k", "--executed", "--status", "200", "--header", "nonsense"],
      /must be "name: value"/,
    ],
    "a result that is no JSON": [["resolve", "k", "--effect-done", "--result", "{"], /--result must be JSON/],
    "a bust without a reason": [["bust", "k"], /bust needs --reason/],
    "a bust with a blank reason": [["bust", "k", "--reason", " "], /bust needs --reason/],
    "a length of time that no timer can run for": [
      ["stats", "--watch", "--every", "30d"],
      /--every is "30d" and must be at most 24d/,
    ],
    "a requeue of nothing": [["dead-letters", "requeue"], /needs the ids of messages, or --all/],
    "a requeue of some and all": [
      ["dead-letters", "requeue", "1", "--all"],
      /needs the ids of messages, or --all/,
    ],
  };
  const ignored: typeof cases = {
    "a time between looks of which there is one": [["stats", "--every", "5s"], /add --watch/],
    "a status for what nobody is asked": [["work", "--reconcile-status", "201"], /add --reconcile URL/],
    "one key space for what nobody is asked": [["work", "--single-tenant"], /add --reconcile URL/],
    "a header for what is sent nowhere": [["work", "--tenant-header", "x-of"], /add --complete URL/],
    "operators of what is not served": [["work", "--operators", "who.json"], /add --admin-port PORT/],
    "a host of an admin API that is not served": [["work", "--admin-host", "::1"], /add --admin-port PORT/],
    "a host of metrics that are not served": [["work", "--metrics-host", "::1"], /add --metrics-port PORT/],
    "an admin API for one round": [
      ["work", "--once", "--admin-port", "0"],
      /--once ends after one round.*--admin-port: leave one of them out/,
    ],
    "metrics for one round": [
      ["work", "--once", "--metrics-port", "0"],
      /--once ends after one round.*--metrics-port: leave one of them out/,
    ],
    "a target of a relay that does not run": [
      ["work", "--workers", "sweeper", "--relay", "http://a"],
      /--relay is for the relay, which does not run: add relay to --workers, or leave --relay out/,
    ],
    "a target of a reconciler that does not run": [
      ["work", "--workers", "sweeper", "--reconcile", "http://a/{key}/{tenant}"],
      /add reconciler to --workers/,
    ],
    "a target of a completer that does not run": [
      ["work", "--workers", "sweeper", "--complete", "http://a"],
      /add completer to --workers/,
    ],
  };
  it.concurrent.each(Object.entries({ ...cases, ...ignored }))("%s", async (_, [args, said]) => {
    const { code, stdout, stderr } = await latchkey.run(args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(said);
    expect(stderr).not.toMatch(/\n\s+at /);
  });
});

it("with --json an error is one document on stderr, and stdout stays empty", async () => {
  const { code, stdout, stderr } = await latchkey.run(["list", "--json", "--stat", "x"]);
  expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
  expect(JSON.parse(stderr)).toEqual({
    error: { code: "usage", message: expect.stringMatching(/did you mean --state/) },
  });
});

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import {
  type ConfigProblem,
  GatewayConfigError,
  problemLine,
  shownPath,
} from "../../src/gateway/config/problems.ts";
import { checkGateway, checkText, readSettings } from "../../src/gateway/config/settings.ts";
import { badConfigs } from "./bad-configs.ts";

const good = "upstream: http://127.0.0.1:9000\ntenant: single\n";

function check(text: string, env: Record<string, string> = {}) {
  return checkText({ file: "gateway.yaml", text, env });
}

const lines = (problems: readonly ConfigProblem[]) => problems.map(problemLine);

describe("a configuration with one mistake is refused, with its line, its member and what to do", () => {
  for (const { what, text, at, path, says } of badConfigs) {
    it(what, () => {
      const { settings, errors } = check(text);

      expect(settings).toBeUndefined();
      expect(lines(errors)).toHaveLength(1);
      const [problem] = errors;
      expect(problem && { place: problem.place, path: shownPath(problem.path) }).toEqual({
        place: `gateway.yaml:${at}`,
        path,
      });
      expect(problem?.sentence).toMatch(says);
    });
  }
});

describe("what is wrong", () => {
  it("is said all at once, in the order of the lines, also what is wrong between members", () => {
    const { errors } = check(
      [
        "upstream: ftp://a",
        "tenant: single",
        "listn: {}",
        "listen: { port: 99999, hots: a, protocol: b }",
        "defaults:",
        "  waitMs: soon",
        "  onInFlight: perhaps",
        "routes:",
        "  - { path: /a, name: x, protect: { waitMs: -1 } }",
        "  - { path: /b, name: x }",
        "  - { path: '/c/../d', methods: [] }",
        "  - path: /d",
        "    reconcile: { url: '/x/{key}' }",
        "hashKeys: 'too short'",
        "metrics: {}",
      ].join("\n"),
    );

    expect(
      errors.map(({ place, path }) => `${place.replace("gateway.yaml:", "")} ${shownPath(path)}`),
    ).toEqual([
      "1:11 upstream",
      "3:1 listn",
      "4:17 listen.port",
      "4:24 listen.hots",
      "4:33 listen.protocol",
      "6:11 defaults.waitMs",
      "7:15 defaults.onInFlight",
      "9:45 routes[0].protect.waitMs",
      "10:23 routes[1].name",
      "11:13 routes[2].path",
      "11:33 routes[2].methods",
      "13:16 routes[3].reconcile",
      "13:23 routes[3].reconcile.url",
      "14:11 hashKeys",
      "15:10 metrics",
    ]);
  });

  it("throws as one error, a line for each", async () => {
    const reading = readSettings({ upstream: "nowhere", port: 70_000 }, {});

    await expect(reading).rejects.toThrow(GatewayConfigError);
    await expect(reading).rejects.toThrow(/\n--upstream: upstream is "nowhere"/);
    await expect(reading).rejects.toThrow(/\n--port: listen.port is 70000/);
    await expect(reading).rejects.toThrow(/\ncommand line: tenant is missing/);
  });

  it("is said of YAML that is none, of members that are there twice, and of tags", () => {
    expect(lines(check("upstream: [\n").errors)).toEqual([
      expect.stringMatching(/^gateway.yaml:\d+:\d+: is not YAML/),
    ]);
    expect(lines(check(`${good}drainMs: 1s\ndrainMs: 2s\nlistn: {}\n`).errors)).toEqual([
      "gateway.yaml:4:1: this member is written twice: remove one of them",
      expect.stringMatching(/^gateway.yaml:5:1: listn/),
    ]);
    expect(lines(check(`${good}statusPath: !secret /a\n`).errors)).toEqual([
      expect.stringMatching(/^gateway.yaml:3:13: has a YAML tag/),
    ]);
    expect(lines(check(`${good}---\n${good}`).errors)).toEqual([
      expect.stringMatching(/more than one YAML document/),
    ]);
    expect(lines(check("- a\n").errors)).toEqual([expect.stringMatching(/must be a map of members/)]);
    expect(lines(check("").errors)).toHaveLength(2);
  });

  it("is said of aliases that would fill the memory, quickly", () => {
    const names = "abcdefghij";
    const bomb = [...names].map((name, index) => {
      const before = names[index - 1];
      return `${name}: &${name} [${Array(9)
        .fill(before === undefined ? "x" : `*${before}`)
        .join(", ")}]`;
    });

    expect(lines(check(bomb.join("\n")).errors)).toEqual([
      expect.stringMatching(/aliases expand to more than 100/),
    ]);
  });

  it("is said of a file that is far too large", () => {
    expect(lines(check(`${good}#${"x".repeat(1024 * 1024)}`).errors)).toEqual([
      expect.stringMatching(/more than 1048576 bytes/),
    ]);
  });
});

describe("what is probably not meant", () => {
  const warningsOf = (text: string) => {
    const { errors, warnings } = check(good + text);
    expect(lines(errors)).toEqual([]);
    return lines(warnings);
  };

  it("is a route that an earlier one takes everything of", () => {
    expect(
      warningsOf(
        "routes:\n  - path: /v1/*\n  - path: /v1/charges\n  - { path: /v1/charges, methods: [PUT] }\n",
      ),
    ).toEqual([
      expect.stringMatching(
        /^gateway.yaml:5:11: warning: routes\[1\].path is \/v1\/charges, and never matches: routes\[0\]/,
      ),
    ]);
    expect(warningsOf("routes:\n  - path: /:a\n  - path: /a\n")).toHaveLength(1);
    expect(
      warningsOf("routes:\n  - path: /a\n  - path: /:a\n  - path: /a/*\n  - path: /a/b/c\n"),
    ).toHaveLength(1);
    // An exception takes nothing but its own spelling, and only then all methods.
    expect(warningsOf("routes:\n  - { path: /a, protect: false }\n  - path: /A\n")).toEqual([]);
    expect(warningsOf("routes:\n  - path: /a\n  - { path: /a, protect: false }\n")).toEqual([]);
  });

  it("is a gateway that protects nothing", () => {
    expect(warningsOf("unmatched: pass\n")).toEqual([expect.stringMatching(/no route is protected/)]);
  });

  it("is metrics that everybody can read, and a token for any audience", () => {
    expect(warningsOf("metrics: { path: /metrics }\n")).toEqual([expect.stringMatching(/without a token/)]);
    expect(warningsOf(`jwt: { secret: ${"x".repeat(32)}, algorithms: [HS256] }\n`)).toEqual([
      expect.stringMatching(/jwt is not used|has no audience/),
      expect.stringMatching(/jwt is not used|has no audience/),
    ]);
  });

  it("is accepting requests that nobody executes, or without what upstream knows its caller by", () => {
    expect(warningsOf("statusPath: /status\ndefaults: { onInFlight: accept }\nworkers: false\n")).toEqual([
      expect.stringMatching(/no completer/),
    ]);
    expect(
      lines(
        check(
          "upstream: http://a\ntenant: header:X-Key\nstatusPath: /status\ndefaults: { onInFlight: accept }\n",
        ).warnings,
      ),
    ).toEqual([expect.stringMatching(/X-Key is not in keepRequestHeaders/)]);
  });
});

describe("variables of the environment", () => {
  it("are put into texts, and $${…} stands for itself", () => {
    const { settings } = check(
      `upstream: http://\${HOST}:\${PORT}\ntenant: single\nroutes:\n  - { path: /a, name: "$\${NAME}" }\n`,
      { HOST: "service", PORT: "9000" },
    );

    expect(settings?.config.upstream).toBe("http://service:9000");
    expect(settings?.config.routes[0]?.name).toBe("$" + "{NAME}");
  });

  it("that are not set are named with their line, and nothing else is said of their member", () => {
    const { errors } = check(`${good}store: \${STORE}\nhashKeys: \${SECRET}\n`, { SECRET: "" });

    expect(lines(errors)).toEqual([
      expect.stringMatching(
        /^gateway.yaml:3:8: store names the environment variable STORE, which is not set/,
      ),
      expect.stringMatching(
        /^gateway.yaml:4:11: hashKeys names the environment variable SECRET, which is not set/,
      ),
    ]);
  });

  it("are never shown, whatever is wrong with them", () => {
    const put = "$" + "{SECRET}";
    const value = "swordfish-swordfish";
    const { errors, warnings } = check(
      [
        `upstream: &it ${put}`,
        "tenant: *it",
        `jwt: { secret: '${put}', algorithms: ['${put}'], jwks: '${put}' }`,
        `hashKeys: ${put}`,
        `store: ${put}`,
        `drainMs: ${put}`,
        `encryption: { keys: [{ id: '${put}', secret: '${put}' }] }`,
        `admin: { port: 0, operators: [{ name: a, token: '${put}' }, { name: b, token: '${put}' }] }`,
        `defaults: { onInFlight: '${put}', requestTime: { header: X-Time, secret: '${put}' } }`,
        `routes: [{ path: '${put}', protect: '${put}' }]`,
      ].join("\n"),
      { SECRET: value },
    );

    expect(errors.length).toBeGreaterThan(8);
    expect(JSON.stringify([...errors, ...warnings])).not.toContain(value);
  });

  it("do not make secrets that are written in the file appear either", () => {
    const { errors } = check(
      `${good}hashKeys: swordfish\nmetrics: { port: 0, token: "sword fish" }\nstore: sword://fish\n`,
    );

    expect(errors).toHaveLength(3);
    expect(JSON.stringify(errors)).not.toMatch(/sword.?fish/);
  });
});

describe("flags", () => {
  let folder: string;
  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), "latchkey-gateway-"));
  });
  afterEach(() => rm(folder, { recursive: true }));

  it("alone are a configuration", async () => {
    const { config } = await readSettings({ upstream: "http://127.0.0.1:9000", tenant: "single" }, {});

    expect(config).toMatchObject({
      listen: { port: 8080, host: "127.0.0.1" },
      store: "sqlite:./latchkey.db",
      unmatched: "protect",
      workers: true,
    });
  });

  it("take the place of what the file says, member by member", async () => {
    const file = join(folder, "gateway.yaml");
    await writeFile(
      file,
      "upstream: { url: http://a, connections: 3 }\nlisten: { port: 1, host: '::1' }\ntenant: single\n",
    );

    const flags = { config: file, upstream: "http://b", port: 0, store: "memory:", tenant: "header:X-A" };
    const { config } = await readSettings(flags, {});

    expect(config).toMatchObject({
      upstream: { url: "http://b", connections: 3 },
      listen: { port: 0, host: "::1" },
      store: "memory:",
      tenant: "header:X-A",
    });
  });

  it("name a file that is not there, and keys that cannot be read", async () => {
    const file = join(folder, "gateway.yaml");
    expect(lines((await checkGateway({ config: file }, {})).errors)).toEqual([
      `${file}: cannot be read: there is no such file`,
    ]);
    await writeFile(
      file,
      "upstream: http://a\ntenant: jwt:sub\njwt: { jwksFile: keys.json, algorithms: [RS256], audience: a }\n",
    );
    const complaints = async () => lines((await checkGateway({ config: file }, {})).errors);
    const place = `${file}:3:18: jwt.jwksFile cannot be used:`;
    expect(await complaints()).toEqual([`${place} there is no such file`]);
    for (const [written, why] of [
      ["{", "it is not JSON"],
      ["null", 'it is not a set of keys, such as {"keys":[…]}'],
      ['{"keys":[1]}', 'it is not a set of keys, such as {"keys":[…]}'],
    ] as const) {
      await writeFile(join(folder, "keys.json"), written);
      expect(await complaints()).toEqual([`${place} ${why}`]);
    }
    await writeFile(join(folder, "keys.json"), '{"keys":[]}');
    expect((await checkGateway({ config: file }, {})).settings?.config.jwt?.jwksFile).toBe(
      join(folder, "keys.json"),
    );
  });

  it("have keys that cannot be read said with everything else that is wrong, in its place", async () => {
    const file = join(folder, "gateway.yaml");
    await writeFile(
      file,
      "upstream: ftp://a\ntenant: jwt:sub\njwt: { jwksFile: keys.json, algorithms: [none] }\ndrainMs: soon\n",
    );
    const { errors } = await checkGateway({ config: file }, {});
    expect(errors.map(({ path }) => shownPath(path))).toEqual([
      "upstream",
      "jwt.jwksFile",
      "jwt.algorithms[0]",
      "drainMs",
    ]);
  });
});

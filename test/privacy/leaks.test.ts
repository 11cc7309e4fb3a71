import { inspect } from "node:util";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { prometheusMetrics } from "../../src/observe/prometheus.ts";
import { memoryStore } from "../../src/stores/memory/store.ts";
import { sqliteStore } from "../../src/stores/sqlite/store.ts";
import { faultyStore, manualClock } from "../../src/testing/index.ts";
import { eve, served } from "../admin/admin-client.ts";
import { useFolder } from "../stores/sqlite-support.ts";
import { ring, secondKey, service, tampered } from "./support.ts";

const place = useFolder();
const marks = {
  requestBody: "MARK-request-body",
  requestHeader: "MARK-request-header",
  responseBody: "MARK-response-body",
  responseHeader: "MARK-response-header",
  secret: Buffer.alloc(32, "MARK-the-secret-of-the-ring-0123"),
};
const content = [marks.requestBody, marks.requestHeader, marks.responseBody, marks.responseHeader];

const warnings: string[] = [];
const onWarning = (warning: Error) => void warnings.push(inspect(warning));
beforeEach(() => void process.on("warning", onWarning));
afterEach(() => void process.off("warning", onWarning));

type Api = ReturnType<typeof watched>;

/** A process whose every line of the log is kept, and whose every metric is measured. */
function watched(...[options, route, handler]: Parameters<typeof service>) {
  const lines: string[] = [];
  const write = (...line: unknown[]) => void lines.push(inspect(line, { depth: 20 }));
  const logger = { debug: write, info: write, warn: write, error: write };
  const api = service({ logger, ...options }, route, handler);
  const isEncrypted = options.encryption !== undefined;
  return { ...api, lines, metrics: prometheusMetrics(api.latchkey), isEncrypted };
}

function send(api: Api, key = "MARK-key", body = marks.requestBody, tenant = "MARK-tenant") {
  return api.handle(
    new Request("http://x/charges", {
      method: "POST",
      headers: { "idempotency-key": key, "x-tenant": tenant, authorization: marks.requestHeader },
      body,
    }),
  );
}

function answering(options: Parameters<typeof service>[0], route = {}) {
  return watched({ replayHeaders: ["x-mark"], ...options }, route, () => {
    return new Response(marks.responseBody, { headers: { "x-mark": marks.responseHeader } });
  });
}

/** Everything that leaves a process beside the answers of its handlers, with the causes of errors. */
async function said(api: Api, answers: readonly Response[], responses?: "shown"): Promise<string> {
  const problems: string[] = [];
  for (const answer of answers) {
    if (answer.headers.get("content-type") !== "application/problem+json") continue;
    problems.push((await answer.text()) + inspect([...answer.headers]));
  }
  const views = await operatorViews(api, responses);
  await new Promise(setImmediate);
  return [
    inspect(api.events, { depth: 20 }),
    JSON.stringify(api.events),
    ...api.lines,
    await api.metrics.text(),
    ...views,
    ...problems,
    ...warnings,
  ].join("\n");
}

/** What an operator sees who may only look. What is not encrypted has to be hidden on purpose. */
async function operatorViews(api: Api, shown?: "shown"): Promise<string[]> {
  const responses = shown ?? (api.isEncrypted ? undefined : "hidden");
  const admin = await served(api.latchkey, { responses });
  const paths = [
    "/api/records",
    "/api/record?scope=MARK-tenant&key=MARK-key",
    "/api/dead-letters",
    "/api/audit",
    "/api/stats",
    "/api/activity",
  ];
  const views: string[] = [];
  for (const path of paths) views.push(await (await admin.ask(path, { token: eve.token })).text());
  return views;
}

function expectNoContent(text: string): void {
  for (const mark of [...content, marks.secret.toString(), marks.secret.toString("hex")]) {
    expect(text).not.toContain(mark);
  }
}

describe("what a request and its answer say", () => {
  it("stands in no event, log, metric, operator's view, problem or warning of requests that go well, are repeated or misused", async () => {
    const api = answering({ store: memoryStore(), cache: {} });
    const answers = [await send(api), await send(api), await send(api, undefined, "another body")];
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 422]);
    const text = await said(api, answers);
    expectNoContent(text);
    // Whose request it is, and which, is what events are for; problems name neither.
    expect(text).toContain("MARK-key");
    expect(await problems(answers)).not.toContain("MARK");
  });

  it("is looked for where it would be found: operators see it where they are to", async () => {
    const api = answering({ store: memoryStore(), encryption: ring() });
    const answers = [await send(api), await send(api, undefined, "another body")];
    const text = await said(api, answers, "shown");
    expect(text).toContain(marks.responseBody);
    expect(text).toContain(marks.responseHeader);
    expect(api.lines.join()).toContain("key_misuse");
    expect(await api.metrics.text()).toMatch(/misuse[a-z_]*_total 1$/m);
    expectNoContent(await said(api, []));
  });

  it("stands in none of those of a handler that fails", async () => {
    const api = watched({ store: memoryStore(), onServerError: "reconcile" }, {}, () => {
      return new Response(marks.responseBody, { status: 500, headers: { "x-mark": marks.responseHeader } });
    });
    const answers = [await send(api), await send(api)];
    expect(answers.map(({ status }) => status)).toEqual([500, 409]);
    expectNoContent(await said(api, answers));
  });

  it("stands in none of those of a store that fails, whichever verb", async () => {
    for (const verb of ["reserve", "settle"] as const) {
      const clock = manualClock();
      const store = faultyStore({
        store: memoryStore({ clock: clock.now }),
        runtime: clock,
        choose: (asked) => ({ kind: asked === verb ? "failBefore" : "none" }),
      });
      const api = answering({ store, runtime: clock }, { keepRequest: true });
      const answer = await send(api);
      expect(answer.status).toBe(503);
      expectNoContent(await said(api, [answer]));
    }
  });

  it("stands in no error of a real database", async () => {
    const store = sqliteStore(place.path);
    const api = answering({ store }, { keepRequest: true });
    await send(api);
    await store.close();
    const answer = await send(api, "MARK-second");
    expect(answer.status).toBe(503);
    expectNoContent(await said(api, [answer]));
  });

  it("stands in none of those of what cannot be opened, and neither does a secret", async () => {
    const store = memoryStore();
    const encryption = ring({}, [{ id: "marked", secret: marks.secret }]);
    const writing = answering({ store, encryption }, { keepRequest: true });
    await send(writing);
    const missing = answering({ store, encryption: ring({}, [secondKey]) });
    const damaged = answering({
      store: tampered(store, (response) =>
        response.kind === "full" ? { ...response, body: response.body.slice(0, -1) } : response,
      ),
      encryption: ring({}, [{ id: "marked", secret: marks.secret }]),
    });
    for (const api of [writing, missing, damaged]) {
      const answer = await send(api);
      expectNoContent(await said(api, [answer]));
      // A ring that somebody logs shows nothing either.
      expectNoContent(inspect(encryption, { depth: 20, showHidden: true }) + JSON.stringify(encryption));
    }
    expect([missing.runs(), damaged.runs()]).toEqual([0, 0]);
  });

  it("stands in no problem of a key that is refused", async () => {
    const api = answering({ store: memoryStore() });
    for (const key of ["MARK@example.com", "+49 151 12345678", "4111111111111111", 'MARK" x', "MARK\t"]) {
      const answer = await send(api, `"${key}"`);
      expect(answer.status).toBe(400);
      const text = await answer.text();
      for (const part of ["MARK", "example", "151", "4111"]) expect(text).not.toContain(part);
    }
    expect(api.runs()).toBe(0);
    await expect(api.latchkey.run({ tenant: "acme", key: "MARK@example.com" }, () => 1)).rejects.toThrow(
      /^(?!.*MARK).*personal data/,
    );
    const allowing = answering({ store: memoryStore(), personalKeys: "allow" });
    expect((await send(allowing, "ada@example.com")).status).toBe(200);
  });
});

async function problems(answers: readonly Response[]): Promise<string> {
  const texts = await Promise.all(
    answers.map((answer) => (answer.bodyUsed ? "" : answer.status < 400 ? "" : answer.text())),
  );
  return texts.join("\n");
}

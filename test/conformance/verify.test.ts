import { createServer } from "node:http";
import { describe, expect, it } from "vitest";
import {
  CannotVerifyError,
  type Report,
  VerifyOptionsError,
  verify,
} from "../../src/conformance/conformance.ts";
import { listening, portOf } from "../adapters/application.ts";
import { WrongServer } from "./wrong-server.ts";

const outcomeOf = ({ checks }: Report, id: string) => checks.find((check) => check.id === id);

/** A server of one function, for answers that no payments API gives. */
async function withServer<T>(
  answer: (count: number, hasKey: boolean) => { status: number; body: string },
  use: (url: string) => Promise<T>,
): Promise<T> {
  let count = 0;
  const server = await listening(
    createServer((req, res) => {
      req.resume().on("end", () => {
        count += 1;
        const { status, body } = answer(count, req.headers["idempotency-key"] !== undefined);
        res.writeHead(status, { "content-type": "application/json" }).end(body);
      });
    }),
  );
  try {
    return await use(`http://127.0.0.1:${portOf(server)}/`);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

describe("what cannot be seen is not called good", () => {
  it("without a ledger, an API that does everything twice and always answers alike gets warnings that say so", async () => {
    const report = await withServer(
      (_, hasKey) => (hasKey ? { status: 200, body: '{"ok":true}' } : { status: 400, body: "{}" }),
      (url) => verify({ url, body: { amount: 1 }, pauseMs: 0, concurrency: 3 }),
    );
    expect(report.seesEffects).toBe(false);
    for (const id of ["replay.same-answer", "concurrency.at-once"]) {
      expect(outcomeOf(report, id)).toMatchObject({
        outcome: "warn",
        reason: expect.stringMatching(
          /every execution here answers alike, so a second execution would not be seen/,
        ),
      });
    }
    for (const id of ["disconnect.once-sent", "disconnect.while-running"]) {
      expect(outcomeOf(report, id)).toMatchObject({ outcome: "warn" });
    }
  });

  it("an API that gives back what it got has told nothing apart, though every request differs", async () => {
    const server = await listening(
      createServer((req, res) => {
        if (req.headers["idempotency-key"] === undefined) res.statusCode = 400;
        req.pipe(res);
      }),
    );
    const report = await verify({
      url: `http://127.0.0.1:${portOf(server)}/`,
      body: (n) => ({ n }),
      pauseMs: 0,
      concurrency: 3,
    }).finally(() => server.close());
    expect(outcomeOf(report, "replay.same-answer")).toMatchObject({
      outcome: "warn",
      reason: expect.stringMatching(/every execution here answers alike/),
    });
  });

  it("with a ledger, the same API fails", async () => {
    const executed: string[] = [];
    const server = await listening(
      createServer((req, res) => {
        req.resume().on("end", () => {
          executed.push(String(req.headers["idempotency-key"]));
          res.end("done");
        });
      }),
    );
    const report = await verify({
      url: `http://127.0.0.1:${portOf(server)}/`,
      pauseMs: 0,
      concurrency: 3,
      effects: (key) => executed.filter((one) => one === key).length,
    }).finally(() => server.close());
    expect(outcomeOf(report, "replay.same-answer")).toMatchObject({
      outcome: "fail",
      reason: expect.stringMatching(/the ledger has 2 effects for one key/),
    });
    expect(outcomeOf(report, "concurrency.at-once")?.reason).toMatch(
      /of 3 requests under one key 3 were executed/,
    );
    expect(outcomeOf(report, "replay.marked")).toMatchObject({
      outcome: "skipped",
      reason: expect.stringMatching(/replay.same-answer failed/),
    });
  });

  it("without another body, misuse is skipped and says what is missing", async () => {
    const server = await WrongServer.start();
    const report = await verify({ url: server.url, body: { amount: 1 }, pauseMs: 0 }).finally(() =>
      server.close(),
    );
    expect(outcomeOf(report, "misuse.other-body")).toMatchObject({
      outcome: "skipped",
      reason: expect.stringMatching(/give otherBody/),
    });
    expect(outcomeOf(report, "misuse.other-path")?.reason).toMatch(/give otherUrl/);
    expect(outcomeOf(report, "hygiene.other-tenant")?.reason).toMatch(/give otherHeaders/);
    expect(report.passed).toBe(true);
  });
});

describe("nothing is judged where nothing can be", () => {
  it.each([
    [
      "an API that refuses even what should be fine",
      { status: 401, body: "who are you?" },
      /answered with 401.*who are you\?/,
    ],
    ["an API that fails", { status: 500, body: "" }, /answered with 500/],
  ])("%s", async (_, answer, said) => {
    const judged = withServer(
      () => answer,
      (url) => verify({ url, body: {} }),
    );
    await expect(judged).rejects.toThrow(CannotVerifyError);
    await expect(judged).rejects.toThrow(said);
  });

  it("an API that is not there", async () => {
    await expect(verify({ url: "http://127.0.0.1:9/", timeoutMs: 2000 })).rejects.toThrow(
      /gives no answer: .*ECONNREFUSED/,
    );
  });

  it.each([
    ["counts nothing", () => 0, /the ledger has 0 effects/],
    ["counts everything", () => 7, /the ledger has 7 effects/],
    ["says nonsense", () => Number.NaN, /must answer with how many effects/],
  ])("a ledger that %s", async (_, effects, said) => {
    const server = await WrongServer.start();
    const judged = verify({ url: server.url, body: { amount: 1 }, effects, timeoutMs: 300 }).finally(() =>
      server.close(),
    );
    await expect(judged).rejects.toThrow(said);
  });
});

it("a ledger by its URL gets the key, and the credentials only if it is the API's own", async () => {
  const server = await WrongServer.start();
  const asked: (string | undefined)[] = [];
  const ledger = await listening(
    createServer((req, res) => {
      asked.push(req.headers.authorization);
      const key = decodeURIComponent(req.url?.split("/").at(-1) ?? "");
      const count = server.effects(key);
      res.end(JSON.stringify(asked.length % 2 === 0 ? { count } : Array.from({ length: count })));
    }),
  );
  const report = await verify({
    url: server.url,
    headers: { authorization: "Bearer for-the-api-alone" },
    body: (n) => ({ amount: n }),
    effects: `http://127.0.0.1:${portOf(ledger)}/effects/{key}`,
    pauseMs: 0,
  }).finally(() => Promise.all([server.close(), ledger.close()]));
  expect(report).toMatchObject({ passed: true, seesEffects: true });
  expect(asked.length).toBeGreaterThan(5);
  expect(new Set(asked)).toEqual(new Set([undefined]));
});

describe("options that cannot be used are refused before anything is sent", () => {
  const cases = {
    "no URL": [{ url: "charges" }, /url must be an http or https URL/],
    "another protocol": [{ url: "ftp://host/" }, /url must be an http/],
    "a key of one's own": [{ headers: { "IDEMPOTENCY-KEY": "x" } }, /leave it out/],
    "a profile that is none": [{ profile: "rfc" as "ietf" }, /must be one of: ietf, stripe, acp/],
    "another body that is the same": [{ body: { a: 1 }, otherBody: '{"a":1}' }, /must differ/],
    "a storm of one": [{ concurrency: 1 }, /concurrency is 1 and must be a whole number from 2/],
    "no time at all": [{ timeoutMs: 0 }, /timeoutMs/],
    "a ledger for no key": [{ effects: "http://host/effects" }, /must have \{key\} in it/],
    "a method that is none": [{ method: "PO ST" }, /method/],
    "a header that is none": [{ keyHeader: "a b" }, /keyHeader/],
  } as const;
  it.each(Object.entries(cases))("%s", async (_, [options, said]) => {
    const judged = verify({ url: "http://127.0.0.1:9/", ...options });
    await expect(judged).rejects.toThrow(VerifyOptionsError);
    await expect(judged).rejects.toThrow(said);
  });
});

it("tells how far it has come", async () => {
  const server = await WrongServer.start();
  const seen: string[] = [];
  const { checks } = await verify({
    url: server.url,
    body: { amount: 1 },
    pauseMs: 0,
    onProgress: ({ done, total, result }) => seen.push(`${done}/${total} ${result.id}`),
  }).finally(() => server.close());
  expect(seen).toEqual(checks.map(({ id }, index) => `${index + 1}/${checks.length} ${id}`));
});

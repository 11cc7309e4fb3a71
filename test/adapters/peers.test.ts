import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { topics } from "./behaviour/topics.ts";
import { frameworks } from "./frameworks/all.ts";
import { type Case, registerCase } from "./harness.ts";

/** Something that broke when another package was run, and the behaviour here that it would have broken. */
interface Defect {
  readonly seen: string;
  /** The cases, by name, that fail where it happens. */
  readonly cases: readonly string[];
}

/** The same, where it takes more than one process, a crash or a database to see it. */
interface DefectElsewhere {
  readonly seen: string;
  readonly testedIn: string;
  /** The test's own name in that file, or the part of it that does not vary. */
  readonly as: string;
}

const peers: Readonly<Record<string, readonly (Defect | DefectElsewhere)[]>> = {
  "express-idempotency": [
    {
      seen: "four processes, fifty identical POSTs: up to 50 of 50 executed",
      testedIn: "test/stampede/stampede.test.ts",
      as: "rounds: one execution each, all others replay or 409",
    },
    {
      seen: "fifty identical POSTs are checked one by one, and then executed together",
      cases: ["of fifty identical requests at once one executes, and 49 are told to come back"],
    },
    {
      seen: "a replay runs the handler again unless every handler guards itself",
      cases: ["text comes back", "a fresh request costs two calls of the store, and a replay one"],
    },
    {
      seen: "a throwing handler wedges the key",
      cases: [
        "a handler that throws is a 500 to its client, and the retry executes",
        "a handler whose promise rejects is a 500 to its client, and the retry executes",
      ],
    },
    { seen: "res.end() wedges the key", cases: ["an answer that is ended without a body comes back empty"] },
    { seen: '1 equals "1"', cases: ['the number 1 and the string "1" are two requests'] },
    {
      seen: "Buffers come back as JSON",
      cases: ["binary is intact in the first answer and in the replay"],
    },
    {
      seen: "Location is lost",
      cases: ["a JSON answer comes back with its status, its headers and its bytes"],
    },
  ],
  "@node-idempotency": [
    { seen: "a 204 handler runs twice", cases: ["a 204 comes back as a 204, and its handler runs once"] },
    { seen: "a replayed 400 JSON becomes HTML", cases: ["a stored 400 stays the JSON that it was"] },
    {
      seen: "a wrong-body request overwrites the good record",
      cases: ["a wrong request neither overwrites nor delays the right one's answer"],
    },
    {
      seen: "an in-flight 409 is stored and replayed",
      cases: ["a refusal while in flight is never stored"],
    },
    {
      seen: "store down: the request hangs",
      cases: ["a store that hangs is a 503 once its time is up, and nothing runs"],
    },
    {
      seen: "store down: the handler runs",
      cases: ["a store that fails to reserve is a 503, and nothing runs until it is back"],
    },
    {
      seen: "reordered JSON is 422",
      cases: ["reordered JSON with other white space is the same request"],
    },
    {
      seen: "the Postgres table is UNLOGGED, so a crash re-executes",
      testedIn: "test/crash/store-stopped.test.ts",
      as: "gone while a handler runs: its client gets 503, and the retry gets the answer that was made",
    },
    { seen: "long key + path hangs", cases: ["the longest key on a very long path works"] },
  ],
  "hono-idempotency": [
    {
      seen: "binary responses are corrupted on the first answer",
      cases: [
        "binary is intact in the first answer and in the replay",
        "an answer that the handler compressed itself is replayed as the same compressed bytes",
      ],
    },
    { seen: "?amount=9999 replays ?amount=10", cases: ["another query is another request"] },
    {
      seen: "SSE is buffered",
      cases: ["a streaming client has the first event while the handler is still at work"],
    },
    {
      seen: "the lock locks nothing",
      testedIn: "test/stampede/stampede.test.ts",
      as: "rounds: one execution each, all others replay or 409",
    },
    {
      seen: "no fencing",
      testedIn: "test/crash/kill.test.ts",
      as: "cannot complete what another one took over",
    },
  ],
  "@idempot": [
    {
      seen: "another tenant's equal body under another key is refused 409",
      cases: ["equal bodies under different keys, of one tenant or of two, all execute"],
    },
    {
      seen: "the same key on /refunds replays /orders",
      cases: ["the same key on another path never gets the other path's answer"],
    },
    {
      seen: "thrown 500s replay empty",
      cases: [
        "with onServerError store, what a handler that throws answered is replayed",
        "with onServerError store, what a handler whose promise rejects answered is replayed",
      ],
    },
    {
      seen: "write/end replays nothing",
      cases: ["an answer that was written in pieces comes back whole"],
    },
  ],
  "@nestarc/idempotency": [
    {
      seen: "handlers that write to the response themselves run twice",
      cases: ["an answer that was written in pieces comes back whole"],
    },
    { seen: "streams replay as garbage", cases: ["a stream comes back whole"] },
    {
      seen: "outliving the processing TTL runs two at once",
      cases: ["a handler that takes longer than its lease keeps the key all the while"],
    },
  ],
  "express-idempotency-keys": [
    {
      seen: "a client's timeout releases the lock while the handler runs",
      cases: [
        "a client that vanishes does not free the key while its handler runs",
        "a client that breaks off hard does not answer in its handler's place",
      ],
    },
  ],
  "idempotency-redis": [
    {
      seen: "no fingerprint",
      cases: ["a wrong request neither overwrites nor delays the right one's answer"],
    },
    {
      seen: "results never expire",
      cases: ["an answer is replayed for as long as it is kept, and then the key is new"],
    },
    {
      seen: "two run when the lock is lost",
      testedIn: "test/simulation/cluster.test.ts",
      as: "under reconcile no two executions of a key ever hold it at the same time",
    },
  ],
  "@aws-lambda-powertools/idempotency": [
    {
      seen: "duplicates throw instead of waiting",
      cases: ["fifty identical requests that wait all get the one answer"],
    },
    {
      seen: "twenty concurrent requests ran two",
      testedIn: "test/stampede/stampede.test.ts",
      as: "rounds: one execution each, all others replay or 409",
    },
    {
      seen: "MD5 by default",
      testedIn: "test/core/fingerprint-version.test.ts",
      as: "hashes the length and content of each field: %s",
    },
  ],
  "all that keep keys in Redis": [
    {
      seen: "kill -9 in mid-request, restart, retry: 409, some for 24 hours",
      testedIn: "test/crash/kill.test.ts",
      as: "under onCrash %s the key is never wedged",
    },
  ],
  "all of them": [
    {
      seen: "none parses the structured-field key",
      cases: [
        "a quoted key and a bare one are the same key",
        "a key with parameters is refused",
        "two key fields are refused, even with one value",
      ],
    },
    {
      seen: 'none knows "outcome unknown"',
      cases: ["a handler that never answers is a 504 to its client, and its outcome is not known"],
    },
    {
      seen: "none has a 202 mode",
      cases: [
        "accept: the request is kept, answered 202, executed by a worker, and asked for at its address",
      ],
    },
  ],
};

const casesByName = new Map<string, Case>(
  Object.values(topics).flatMap((cases) => cases.map((one) => [one.name, one] as const)),
);

for (const [name, defects] of Object.entries(peers)) {
  describe(`${name}, run in November 2026`, () => {
    for (const defect of defects) {
      if ("testedIn" in defect) {
        it(`${name}: ${defect.seen} (tested in ${defect.testedIn}: ${defect.as})`, () => {
          expect(readFileSync(defect.testedIn, "utf8").includes(defect.as)).toBe(true);
        });
        continue;
      }
      for (const caseName of defect.cases) {
        const one = casesByName.get(caseName);
        if (one === undefined) throw new Error(`there is no case "${caseName}"`);
        for (const framework of frameworks) {
          registerCase(framework, one, `${name}: ${defect.seen}: not with ${framework.name}: ${caseName}`);
        }
      }
    }
  });
}

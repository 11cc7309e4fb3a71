import { expect } from "vitest";
import { currentOperation, NoOperationError } from "../../../src/index.ts";
import { deferred } from "../../support/deferred.ts";
import { empty, json, type Mount, stream, text } from "../application.ts";
import { expectProblem, expectReplay } from "../assertions.ts";
import { type Sending, speak } from "../client.ts";
import type { Case, Site } from "../harness.ts";

const mounts: Readonly<Record<Mount, string>> = {
  route: "on one route",
  application: "on the whole application",
  both: "on the application and on the route as well",
  nowhere: "nowhere",
};

/** A request as text, for clients that do not wait for answers. */
function requestText(key: string, headers = ""): string {
  const body = JSON.stringify({ key });
  return (
    `POST /charges HTTP/1.1\r\nhost: localhost\r\nidempotency-key: ${key}\r\n${headers}` +
    `content-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`
  );
}

export const mountingCases: readonly Case[] = [
  ...(["route", "application", "both"] as const).map(
    (mount): Case => ({
      name: `mounted ${mounts[mount]}, a request executes once`,
      async run(trial) {
        for (const onInFlight of ["reject", "wait"] as const) {
          const site = await trial.start({
            mount,
            policy: { onInFlight },
            handler: async (visit) => json(201, await visit.body()),
          });
          const first = await site.send();
          expect(first).toMatchObject({ status: 201, text: '{"amount":10}' });
          expect(site.store.calls).toMatchObject({ reserve: 1, settle: 1 });
          expectReplay(first, await site.send());
          expectProblem(await site.send({ json: { amount: 11 } }), 422, "key-reused");
          expect(site.executions).toBe(1);
        }
      },
    }),
  ),
  {
    name: "mounted nowhere, the same applications answer without Latchkey",
    async run(trial) {
      const site = await trial.start({ mount: "nowhere" });
      expect((await site.send()).headers["idempotency-expires"]).toBeUndefined();
      await site.send();
      expect(site.executions).toBe(2);
    },
  },
  {
    name: "a handler finds its operation, also after it has awaited",
    async run(trial) {
      const site = await trial.start({
        latchkey: { tenant: () => "acme" },
        handler: async () => {
          await new Promise((resolve) => setImmediate(resolve));
          const { key, scope, attempt, signal } = currentOperation();
          return json(200, { key, scope, attempt, aborted: signal.aborted });
        },
      });
      expect(JSON.parse((await site.send()).text)).toEqual({
        key: "key-1",
        scope: "acme",
        attempt: 1,
        aborted: false,
      });
    },
  },
  {
    name: "requests at the same time each find their own operation",
    async run(trial) {
      const all = deferred();
      const keys = ["a", "b", "c", "d"];
      let arrived = 0;
      const site = await trial.start({
        handler: async () => {
          arrived += 1;
          if (arrived === keys.length) all.resolve();
          await all;
          return text(200, currentOperation().key);
        },
      });
      const answers = await Promise.all(keys.map((key) => site.send({ key })));
      expect(answers.map((answer) => answer.text)).toEqual(keys);
    },
  },
  {
    name: "without an idempotent request there is no operation",
    async run(trial) {
      const site = await trial.start({
        policy: { required: false },
        handler: () => {
          try {
            return text(200, currentOperation().key);
          } catch (error) {
            return text(200, error instanceof NoOperationError ? error.code : String(error));
          }
        },
      });
      expect((await site.send({ method: "GET" })).text).toBe("no-operation");
      expect((await site.send({ key: null })).text).toBe("no-operation");
      expect(() => currentOperation()).toThrow(NoOperationError);
    },
  },
  {
    name: "the longest key on a very long path works",
    async run(trial) {
      // Hono's router takes no more than this in one path; everybody else, and the query, takes what Node does.
      const path = `/charges/${"x".repeat(1000)}`;
      for (const scope of ["tenant", "tenant+endpoint"] as const) {
        const site = await trial.start({ policy: { scope }, routes: { [path]: () => json(201, {}) } });
        const sending = { key: "k".repeat(255), path: `${path}?q=${"y".repeat(8000)}` };
        expectReplay(await site.send(sending), await site.send(sending));
        expect(site.executions).toBe(1);
      }
    },
  },
  {
    name: "a connection can be used again after every kind of answer",
    async run(trial) {
      const site = await trial.start({
        routes: {
          "/charges": () => json(201, { charged: 10 }),
          "/empty": () => empty(204),
          "/stream": () =>
            stream(async function* () {
              yield "one";
              yield "two";
            }),
          "/throws": () => {
            throw new Error("boom");
          },
        },
      });
      const sendings: readonly (readonly [number, Sending])[] = [
        [201, {}],
        [201, {}],
        [422, { json: { amount: 11 } }],
        [400, { key: null }],
        [204, { path: "/empty", key: "empty" }],
        [204, { path: "/empty", key: "empty" }],
        [200, { path: "/stream", key: "stream" }],
        [200, { path: "/stream", key: "stream" }],
        [500, { path: "/throws", key: "throws" }],
        [201, { key: "another" }],
      ];
      const ports = new Set<number | undefined>();
      for (const [status, sending] of sendings) {
        const answer = await site.sendKept(sending);
        expect({ ...sending, status: answer.status }).toEqual({ ...sending, status });
        ports.add(answer.clientPort);
      }
      expect(ports.size).toBe(1);
    },
  },
  {
    name: "requests that are sent without waiting are answered in their order",
    async run(trial) {
      const second = deferred();
      const site = await trial.start({
        handler: async (visit) => {
          const { key } = (await visit.body()) as { key: string };
          // The first is done only after the second, whose answer then has to wait for its turn.
          if (key === "first") await second;
          else second.resolve();
          return text(200, `answer to the ${key}`);
        },
      });
      const heard = await speakBoth(site);
      expect(heard.indexOf("answer to the first")).toBeGreaterThan(0);
      expect(heard.indexOf("answer to the second")).toBeGreaterThan(heard.indexOf("answer to the first"));
      const again = await speakBoth(site);
      expect(again.match(/idempotency-replayed: true/gi)).toHaveLength(2);
      expect(site.executions).toBe(2);
    },
  },
];

function speakBoth(site: Site): Promise<string> {
  return speak(site.port, requestText("first") + requestText("second", "connection: close\r\n"));
}

import type { Socket } from "node:net";
import { describe, expect, it } from "vitest";
import { systemRuntime } from "../../../src/engine/runtime.ts";
import { memoryStore } from "../../../src/stores/memory/store.ts";
import { faultyStore } from "../../../src/testing/faulty-store.ts";
import { expectProblem, expectReplay, expectRetryAfter } from "../../adapters/assertions.ts";
import { until } from "../../adapters/harness.ts";
import { deferred } from "../../support/deferred.ts";
import { lastingPort } from "../../support/server-process.ts";
import { closesAfterwards, Gateway } from "./gateway.ts";
import { answerText, Misbehaving } from "./misbehaving.ts";

async function misbehaving(): Promise<Misbehaving> {
  return closesAfterwards(await Misbehaving.start());
}

/** Answers whole requests properly from now on. */
function behave(upstream: Misbehaving): void {
  upstream.onConnection = () => {};
  upstream.onData = (socket) => socket.write(answerText("done"));
}

async function expectReleased(gateway: Gateway): Promise<void> {
  const first = await gateway.send();
  expectProblem(first, 503, "upstream-unreachable", "same-key");
  expectRetryAfter(first);
  expect(await gateway.settled()).toBe("failed_retryable");
}

/** The outcome is left open, the retry is told so, and upstream never hears of the request again. */
async function expectUnknown(gateway: Gateway, upstream: Misbehaving, status: 502 | 504): Promise<void> {
  const first = await gateway.send();
  expectProblem(first, status, status === 502 ? "upstream-unanswered" : "upstream-timeout", "same-key");
  expectRetryAfter(first);
  expect(await gateway.settled()).toBe("unknown");
  const before = upstream.requests();
  behave(upstream);
  expectProblem(await gateway.send(), 409, "outcome-unknown", "same-key");
  expect(upstream.requests()).toBe(before);
}

describe("a protected request that was never sent", () => {
  it("is released when nobody listens, and the retry runs", async () => {
    const upstream = await misbehaving();
    const { port } = upstream;
    await upstream.close();
    const gateway = await Gateway.start({ upstream: `http://127.0.0.1:${port}` });
    await expectReleased(gateway);
    const back = await misbehaving();
    await back.close();
    back.server.listen(port, "127.0.0.1");
    behave(back);
    const second = await gateway.send();
    expect(second).toMatchObject({ status: 201, text: "done" });
    expectReplay(second, await gateway.send());
    expect(back.requests()).toBe(1);
  });

  it("is not sent any more when its time was up before it got a connection", async () => {
    const upstream = await misbehaving();
    const gateway = await Gateway.start(
      { upstream: upstream.address, connections: 1 },
      { policy: { executionTimeoutMs: 100 } },
    );
    const before = gateway.send({ method: "GET", path: "/slow", key: null });
    await until("the only connection to be taken", () => upstream.requests("GET") === 1);
    expectProblem(await gateway.send(), 504, "execution-timeout", "same-key");
    behave(upstream);
    upstream.sockets[0]?.write(answerText("slow"));
    expect((await before).text).toBe("slow");
    // Whoever comes next has come after it.
    expect((await gateway.send({ method: "GET", path: "/next", key: null })).status).toBe(201);
    expect(upstream.requests()).toBe(0);
    expectProblem(await gateway.send(), 409, "outcome-unknown", "same-key");
  });

  it("is released when the name of the service is not known", async () => {
    await expectReleased(await Gateway.start({ upstream: "http://no-such-service.invalid" }));
  });

  it("is released when the connection takes too long", async () => {
    // A range that is reserved for documentation: nobody answers there, and nobody refuses.
    const gateway = await Gateway.start({ upstream: "http://192.0.2.1:81", connectTimeoutMs: 50 });
    await expectReleased(gateway);
  });

  it.each([0, 100])(
    "is released when it waited for a connection and the gateway was shut down, by a store that takes %d ms",
    async (ms) => {
      const upstream = await misbehaving();
      const store = faultyStore({
        store: memoryStore(),
        runtime: systemRuntime,
        choose: (verb) => (verb === "settle" && ms > 0 ? { kind: "delay", ms } : { kind: "none" }),
      });
      const gateway = await Gateway.start({ upstream: upstream.address, connections: 1 }, { store });
      const first = gateway.send({ key: "sent" });
      await until("the first to be sent", () => upstream.requests() === 1);
      const second = gateway.send({ key: "waiting" });
      await until("the second to be reserved", () => reservations(gateway) === 2);
      await gateway.close({ drainMs: 0 });
      expectProblem(await second, 503, "upstream-unreachable");
      expectProblem(await first, 502, "upstream-unanswered");
      const outcomes = gateway.events.flatMap((event) =>
        event.type === "settled" ? [[event.key, event.as]] : [],
      );
      expect(Object.fromEntries(outcomes)).toEqual({ sent: "unknown", waiting: "failed_retryable" });
      expect(upstream.requests()).toBe(1);
    },
  );

  it.each([
    ["that nobody may wait for", 0],
    ["for which one waits already", 1],
  ])("is released when there is no connection but one %s", async (_which, waitingMax) => {
    const upstream = await misbehaving();
    const gateway = await Gateway.start({ upstream: upstream.address, connections: 1, waitingMax });
    const first = gateway.send({ key: "sent" });
    await until("the first to be sent", () => upstream.requests() === 1);
    // One more than may wait: as soon as one is refused, as many wait as may.
    const others = Array.from({ length: waitingMax + 1 }, () =>
      gateway.send({ method: "GET", path: "/other", key: null }),
    );
    expectProblem(await Promise.race(others), 503, "upstream-busy", "same-key");
    const refused = await gateway.send({ key: "refused" });
    expectProblem(refused, 503, "upstream-busy", "same-key");
    expectRetryAfter(refused);

    behave(upstream);
    upstream.sockets[0]?.write(answerText("done"));
    expect((await first).text).toBe("done");
    const statuses = (await Promise.all(others)).map(({ status }) => status);
    expect(statuses.toSorted()).toEqual([...Array.from({ length: waitingMax }, () => 201), 503]);
    // Nothing was executed, and there is room again.
    expect((await gateway.send({ key: "refused" })).status).toBe(201);
  });

  it("is released when the service's certificate is not valid, before a byte of it has left", async () => {
    const upstream = await misbehaving();
    // What it answers to a greeting is nothing that TLS knows.
    upstream.onData = (socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n");
    await expectReleased(await Gateway.start({ upstream: `https://127.0.0.1:${upstream.port}` }));
    expect(upstream.requests()).toBe(0);
  });
});

function reservations(gateway: Gateway): number {
  return gateway.events.filter((event) => event.type === "reserved").length;
}

/** Ways not to answer a request that was sent, or not to answer all of it. */
const faults: Readonly<Record<string, (socket: Socket) => void>> = {
  "the connection is reset": (socket) => socket.resetAndDestroy(),
  "the connection is ended": (socket) => socket.end(),
  "the answer stops in its head": (socket) => socket.end("HTTP/1.1 201 Created\r\ncontent-le"),
  "the answer stops before its body": (socket) =>
    socket.end("HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\n"),
  "the answer is shorter than it says": (socket) =>
    socket.end("HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\ndo"),
  "the answer is reset in its middle": (socket) =>
    socket.write("HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\ndo", () => socket.resetAndDestroy()),
  "the last chunk is missing": (socket) =>
    socket.end("HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n4\r\ndone\r\n"),
  "the answer is no HTTP": (socket) => socket.end("+OK done\r\n"),
  "only an interim answer comes": (socket) => socket.end("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"),
  "the answer's end is not told": (socket) => socket.end("HTTP/1.1 201 Created\r\n\r\ndone"),
};

describe("a protected request that was sent, and not answered", () => {
  for (const [fault, misbehave] of Object.entries(faults)) {
    it(`is unknown when ${fault}`, async () => {
      const upstream = await misbehaving();
      upstream.onData = misbehave;
      const gateway = await Gateway.start({ upstream: upstream.address });
      await expectUnknown(gateway, upstream, 502);
      expect(upstream.requests()).toBe(1);
    });
  }

  for (const policy of [
    { onServerError: "retry" },
    { onCrash: "retry" },
    { onServerError: "store" },
  ] as const) {
    it(`is unknown whatever the policy says about failures: ${JSON.stringify(policy)}`, async () => {
      const upstream = await misbehaving();
      upstream.onData = (socket) => socket.resetAndDestroy();
      const gateway = await Gateway.start({ upstream: upstream.address }, { policy });
      await expectUnknown(gateway, upstream, 502);
    });
  }

  it("is unknown when no answer comes in time", async () => {
    const upstream = await misbehaving();
    const gateway = await Gateway.start({ upstream: upstream.address, headersTimeoutMs: 100 });
    await expectUnknown(gateway, upstream, 504);
  });

  it("is unknown when the answer stops coming", async () => {
    const upstream = await misbehaving();
    upstream.onData = (socket) => void socket.write("HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\ndo");
    const gateway = await Gateway.start({ upstream: upstream.address, bodyTimeoutMs: 100 });
    await expectUnknown(gateway, upstream, 504);
  });

  it("is unknown when the gateway is shut down before the answer comes", async () => {
    const upstream = await misbehaving();
    const gateway = await Gateway.start({ upstream: upstream.address });
    const first = gateway.send();
    await until("it to be sent", () => upstream.requests() === 1);
    await gateway.close({ drainMs: 20 });
    expectProblem(await first, 502, "upstream-unanswered");
    expect(await gateway.settled()).toBe("unknown");
  });

  it("breaks off what it has streamed, and is unknown", async () => {
    const upstream = await misbehaving();
    const heard = deferred();
    upstream.onData = (socket) => {
      socket.write("HTTP/1.1 201 Created\r\ncontent-length: 8\r\n\r\ndo");
      void heard.then(() => socket.resetAndDestroy());
    };
    const gateway = await Gateway.start({ upstream: upstream.address }, { policy: { streaming: true } });
    const response = await gateway.open().response;
    response.once("data", () => heard.resolve());
    await expect(response.toArray()).rejects.toThrow();
    expect(await gateway.settled()).toBe("unknown");
  });
});

describe("a kept connection that upstream closes", () => {
  it("in the moment in which a request is written to it: unknown, and sent once", async () => {
    const upstream = await misbehaving();
    upstream.onData = (socket) => socket.write(answerText("done"));
    const gateway = await Gateway.start({ upstream: upstream.address, connections: 1 });
    expect((await gateway.send({ key: "first" })).status).toBe(201);
    // It reads the request, and ends the connection as if it had been idle.
    upstream.onData = (socket) => socket.end();
    await expectUnknown(gateway, upstream, 502);
    expect(upstream.requests()).toBe(2);
    expect(upstream.sockets).toHaveLength(1);
  });

  it("before a request comes: a new one is made, and nothing is in doubt", async () => {
    const upstream = await misbehaving();
    upstream.onData = (socket) => socket.write(answerText("done"));
    const gateway = await Gateway.start({ upstream: upstream.address, connections: 1 });
    for (let round = 1; round <= 20; round += 1) {
      expect((await gateway.send({ key: `key-${round}` })).status).toBe(201);
      const socket = upstream.sockets.at(-1);
      const closed = new Promise((resolve) => socket?.once("close", resolve));
      if (round % 2 === 0) socket?.end();
      else socket?.resetAndDestroy();
      await closed;
    }
    expect(upstream.requests()).toBe(20);
  });

  it("whenever it likes, under load: every request that upstream has read was sent once", async () => {
    const upstream = await misbehaving();
    let answered = 0;
    upstream.onData = (socket) => {
      socket.write(answerText("done"));
      answered += 1;
      // Right after the answer, when the gateway may already be writing the next request.
      if (answered % 3 === 0) setImmediate(() => socket.end());
      if (answered % 7 === 0) setImmediate(() => socket.resetAndDestroy());
    };
    const gateway = await Gateway.start({ upstream: upstream.address, connections: 4 });
    const keys = Array.from({ length: 200 }, (_, index) => `load-${index}`);
    const statuses = new Map<string, number>();
    const work = keys.values();
    await Promise.all(
      Array.from({ length: 8 }, async () => {
        for (const key of work) statuses.set(key, (await gateway.send({ key })).status);
      }),
    );
    const read = upstream.heard.join("").match(/idempotency-key: load-\d+/gi) ?? [];
    expect(new Set(read).size).toBe(read.length);
    for (const [key, status] of statuses)
      expect([key, [201, 502, 503].includes(status)]).toEqual([key, true]);
  });
});

describe("an unprotected request", () => {
  it("is 503 when nobody listens, and 502 when no answer comes", async () => {
    const nobody = await Gateway.start({ upstream: `http://127.0.0.1:${await lastingPort()}` });
    expectProblem(await nobody.send({ method: "GET", key: null }), 503, "upstream-unreachable");
    const upstream = await misbehaving();
    upstream.onData = (socket) => socket.end();
    const gateway = await Gateway.start({ upstream: upstream.address });
    expectProblem(await gateway.send({ method: "GET", key: null }), 502, "upstream-unanswered");
    expect(upstream.requests("GET")).toBe(2);
  });

  it("that asks for nothing to be done is sent once more when a kept connection was let go, and no other is", async () => {
    for (const [method, requests, status] of [
      ["GET", 2, 201],
      ["PUT", 1, 502],
      ["DELETE", 1, 502],
    ] as const) {
      const upstream = await misbehaving();
      let isLetGo = false;
      upstream.onData = (socket) => {
        if (isLetGo) socket.write(answerText("done"));
        else socket.end();
        isLetGo = true;
      };
      const gateway = await Gateway.start({ upstream: upstream.address });
      expect([method, (await gateway.send({ method, key: null })).status]).toEqual([method, status]);
      expect([method, upstream.requests(method)]).toEqual([method, requests]);
    }
  });

  for (const [version, framing] of [
    ["1.1", "content-length: 8"],
    ["1.1", "transfer-encoding: chunked"],
    ["1.0", "connection: close"],
  ] as const) {
    it(`never looks whole to an HTTP/${version} client when its answer is not (${framing})`, async () => {
      const upstream = await misbehaving();
      const half = framing.includes("chunked") ? "2\r\ndo\r\n" : "do";
      const heard = deferred();
      upstream.onData = (socket) => {
        socket.write(`HTTP/1.1 200 OK\r\n${framing}\r\n\r\n${half}`);
        void heard.then(() => socket.resetAndDestroy());
      };
      const gateway = await Gateway.start({ upstream: upstream.address });
      const { connect } = await import("node:net");
      const client = connect(gateway.port, "127.0.0.1");
      client.write(`GET / HTTP/${version}\r\nhost: localhost\r\n\r\n`);
      client.on("data", (data) => data.includes("do") && heard.resolve());
      const ended = await new Promise((resolve) => {
        client.on("end", () => resolve("in good order"));
        client.on("error", (error: NodeJS.ErrnoException) => resolve(error.code));
      });
      expect(ended).toBe("ECONNRESET");
    });
  }
});

describe("a protected answer that is larger than anybody would hold", () => {
  const chunk = "x".repeat(1024 * 1024);
  /** Forty of them, in chunks, as fast as they are taken. */
  const pour = (socket: Socket) => {
    socket.write("HTTP/1.1 201 Created\r\ntransfer-encoding: chunked\r\n\r\n");
    for (let count = 0; count < 40; count += 1) socket.write(`${chunk.length.toString(16)}\r\n${chunk}\r\n`);
    socket.write("0\r\n\r\n");
  };

  it("is known to be executed, and neither passed on nor sent for again", async () => {
    const upstream = await misbehaving();
    upstream.onData = pour;
    const gateway = await Gateway.start({ upstream: upstream.address });
    for (let time = 0; time < 2; time += 1) {
      const answer = await gateway.send();
      expectProblem(answer, 409, "response-not-stored", "never");
      expect(JSON.parse(answer.text).originalStatus).toBe(201);
    }
    expect(await gateway.settled()).toBe("completed");
    expect(upstream.requests()).toBe(1);
  });

  it("flows where that was chosen", async () => {
    const upstream = await misbehaving();
    upstream.onData = pour;
    const gateway = await Gateway.start({ upstream: upstream.address }, { policy: { streaming: true } });
    expect((await gateway.send()).body.byteLength).toBe(40 * chunk.length);
    expectProblem(await gateway.send(), 409, "response-not-stored", "never");
    expect(upstream.requests()).toBe(1);
  });
});

// What does a gateway cost a request that it only passes on, and one that it protects?
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { answerWhenStarted, ms, percent, shareBar, whole } from "./lib/answer.js";
import { gatewayContender, startPart } from "./lib/gateway.js";
import { createProgress } from "./lib/progress.js";
import { interleave, medianOf, turns } from "./lib/rounds.js";

/** What an unprotected request may be slower by than without any proxy. */
const addedMsMax = 0.5;
/** What is to be left of the throughput of a bare proxy. */
const shareLeft = 0.7;

const ways = /** @type {const} */ ({
  upstream: "the service itself",
  bare: "a bare undici proxy",
  pass: "the gateway, unprotected",
  memory: "the gateway, protected, in memory",
  sqlite: "the gateway, protected, SQLite",
});

export async function run() {
  const folder = await mkdtemp(join(tmpdir(), "latchkey-gateway-"));
  const upstream = await startPart("upstream");
  const contenders = {
    upstream: gatewayContender(async () => upstream),
    bare: gatewayContender(() => startPart("bare", upstream.url)),
    pass: gatewayContender(() => startPart("pass", upstream.url)),
    memory: gatewayContender(() => startPart("protect", upstream.url, "memory:")),
    sqlite: gatewayContender(() =>
      startPart("protect", upstream.url, `sqlite:${join(folder, "gateway.db")}`),
    ),
  };
  try {
    const samples = await interleave(
      {
        upstream: contenders.upstream.measure,
        bare: contenders.bare.measure,
        pass: contenders.pass.measure,
        memory: contenders.memory.measure,
        sqlite: contenders.sqlite.measure,
      },
      createProgress(turns(Object.keys(contenders).length)),
    );
    return report(samples);
  } finally {
    for (const { stop } of [contenders.bare, contenders.pass, contenders.memory, contenders.sqlite])
      await stop();
    await upstream.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * @param {Record<keyof typeof ways, import("./lib/gateway.js").GatewaySample[]>} samples
 * @returns {import("./lib/answer.js").Answer}
 */
function report(samples) {
  const names = /** @type {(keyof typeof ways)[]} */ (Object.keys(ways));
  const rate = (/** @type {keyof typeof ways} */ name) => medianOf(samples[name], "rate");
  const p50 = (/** @type {keyof typeof ways} */ name) => medianOf(samples[name], "p50");
  const added = p50("pass") - p50("upstream");
  return {
    tables: [
      {
        title: "Requests through a gateway: under load (64 connections), and one at a time",
        columns: ["way", "requests/s", "of the bare proxy", "p50 of one alone", "CPU per request"],
        rows: names.map((name) => [
          ways[name],
          whole(rate(name)),
          name === "upstream" ? "" : percent(rate(name) / rate("bare")),
          ms(p50(name)),
          `${whole(medianOf(samples[name], "cpu"))} µs`,
        ]),
      },
    ],
    bars: [
      shareBar("gateway, unprotected: throughput of a bare undici proxy", {
        rate: rate("pass"),
        of: rate("bare"),
        atLeast: shareLeft,
      }),
      {
        what: "gateway, unprotected: added to the p50 of one request",
        asked: `<= ${ms(addedMsMax)}`,
        measured: ms(added),
        reached: added <= addedMsMax,
      },
    ],
    notes: [
      "The load, the service and what is between them share the processors. Each way is one process beside the service.",
    ],
  };
}

await answerWhenStarted(import.meta.url, run);

// How many requests per second can be told apart? Fingerprints of JSON bodies next to `canonicalize` and SHA-256.
import { createHash } from "node:crypto";
import canonicalize from "canonicalize";
import { fingerprintRequest, fingerprintSelection } from "../dist/core/fingerprint.js";
import { answerWhenStarted, ratioBar, times, whole } from "./lib/answer.js";
import { createProgress } from "./lib/progress.js";
import { interleave, medianOf, turns } from "./lib/rounds.js";
import { seconds } from "./lib/settings.js";

const sizes = { "1 KB": 1_000, "100 KB": 100_000 };

export async function run() {
  /** @type {{ size: string, from: string, contender: "Latchkey" | "canonicalize + SHA-256", work: () => unknown }[]} */
  const plan = Object.entries(sizes).flatMap(([size, bytes]) => {
    const value = orderOf(bytes);
    const text = Buffer.from(JSON.stringify(value));
    return /** @type {const} */ ([
      { size, from: "parsed JSON", contender: "canonicalize + SHA-256", work: () => hashOf(value) },
      {
        size,
        from: "parsed JSON",
        contender: "Latchkey",
        work: () => fingerprintSelection({ method: "POST", path: "/orders", selection: value }),
      },
      {
        size,
        from: "bytes",
        contender: "canonicalize + SHA-256",
        work: () => hashOf(JSON.parse(text.toString())),
      },
      { size, from: "bytes", contender: "Latchkey", work: () => fingerprintRequest(requestOf(text)) },
    ]);
  });
  const samples = await interleave(
    Object.fromEntries(plan.map((turn) => [nameOf(turn), async () => ({ rate: rateOf(turn.work) })])),
    createProgress(turns(plan.length)),
  );
  return report(plan, samples);
}

/** @param {unknown} value */
function hashOf(value) {
  return createHash("sha256")
    .update(canonicalize(value) ?? "")
    .digest("base64url");
}

/** @param {Buffer} bytes */
function requestOf(bytes) {
  return {
    method: "POST",
    path: "/orders",
    query: "",
    contentType: "application/json",
    contentEncoding: undefined,
    body: /** @type {const} */ ({ kind: "bytes", bytes }),
  };
}

/**
 * An order with so many lines that it has about that many bytes.
 *
 * @param {number} bytes
 */
function orderOf(bytes) {
  /** @type {object[]} */
  const lines = [];
  const order = {
    id: "ord_81",
    customer: { name: "Zoë Quill", email: "zoe@example.com" },
    currency: "usd",
    lines,
  };
  for (let n = 0; JSON.stringify(order).length < bytes - 100; n += 1) {
    lines.push({
      sku: `sku-${n}`,
      quantity: 1 + (n % 7),
      amount: 1999 + n,
      note: n % 10 === 0 ? 'as "usual"' : "as usual",
      gift: n % 3 === 0,
    });
  }
  return order;
}

/** @param {() => unknown} work */
function rateOf(work) {
  const slice = seconds / 3; // What does nothing but compute says enough in a third of a turn.
  const countFrom = performance.now() + 200;
  let now = performance.now();
  for (; now < countFrom; now = performance.now()) work();
  const countUntil = now + slice * 1000;
  const begun = now;
  let done = 0;
  for (; now < countUntil; done += 1, now = performance.now()) work();
  return (done / (now - begun)) * 1000;
}

/** @param {{ size: string, from: string, contender: string }} turn */
function nameOf({ size, from, contender }) {
  return `${size}, ${from}, ${contender}`;
}

/**
 * @param {readonly { size: string, from: string, contender: string }[]} plan
 * @param {Record<string, { rate: number }[]>} samples
 * @returns {import("./lib/answer.js").Answer}
 */
function report(plan, samples) {
  const rate = (/** @type {{ size: string, from: string, contender: string }} */ turn) =>
    medianOf(samples[nameOf(turn)], "rate");
  const bar = (/** @type {string} */ from) =>
    ratioBar(`fingerprint of 1 KB, ${from}: canonicalize + SHA-256`, {
      rate: rate({ size: "1 KB", from, contender: "Latchkey" }),
      of: rate({ size: "1 KB", from, contender: "canonicalize + SHA-256" }),
      atLeast: 3,
    });
  return {
    tables: [
      {
        title: "Fingerprints per second, in one process",
        columns: ["body", "from", "contender", "per second", "Latchkey is"],
        rows: plan.map((turn) => [
          turn.size,
          turn.from,
          turn.contender,
          whole(rate(turn)),
          turn.contender === "Latchkey" ? "" : times(rate({ ...turn, contender: "Latchkey" }) / rate(turn)),
        ]),
      },
    ],
    bars: [bar("parsed JSON"), bar("bytes")],
    notes: [
      "From bytes, Latchkey also refuses duplicate member names and half surrogate pairs, which JSON.parse lets pass.",
    ],
  };
}

await answerWhenStarted(import.meta.url, run);

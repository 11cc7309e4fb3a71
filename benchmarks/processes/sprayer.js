// A tenant that makes keys as fast as it is told to: `sprayer.js <url>`. Its parent tells it for how long and how fast;
// it answers with how many were let in, and how many were not.
import autocannon from "autocannon";
import { order } from "../lib/payload.js";

const [url] = process.argv.slice(2);
if (url === undefined) throw new Error("sprayer.js needs a URL");

process.on("disconnect", () => process.exit());
process.on("message", async (/** @type {{ rate: number, requests: number }} */ { rate, requests }) => {
  /** @type {Record<string, number>} */
  const statuses = {};
  const run = autocannon({
    url,
    connections: 16,
    overallRate: rate,
    amount: requests,
    method: "POST",
    body: JSON.stringify(order),
    idReplacement: true,
    headers: {
      "content-type": "application/json",
      "x-tenant": "sprayer",
      "idempotency-key": "[<id>]-sprayed",
    },
  });
  run.on("response", (_client, status) => {
    statuses[status] = (statuses[status] ?? 0) + 1;
  });
  await run;
  process.send?.({ statuses });
});
process.send?.({ ready: true });

// The process of the payments API, which the playground starts, kills and starts again.

import { reportActivity } from "../admin/admin.ts";
import { liveViewOf } from "../admin/live-view.ts";
import { listen } from "./listen.ts";
import { paymentsApi } from "./payments-api.ts";
import type { FromPayments, PaymentsSettings } from "./payments-supervisor.ts";

const { databasePath, providerUrl, port } = JSON.parse(process.argv[2] ?? "{}") as PaymentsSettings;

// The playground has gone, whatever way it went: nobody can reach this process any more.
process.on("disconnect", () => process.exit());
if (!process.connected) process.exit();
// Ctrl-C reaches every process of a terminal. The playground tells this one to end when it is time.
process.on("SIGINT", () => {});

const tell = (message: FromPayments) => {
  if (process.connected) process.send?.(message);
};

const { server, latchkey, startWorkers } = paymentsApi({
  databasePath,
  providerUrl,
  onHandler: (what) => tell({ kind: "handler", at: Date.now(), ...what }),
});
const reporting = reportActivity(latchkey, { role: "payments", intervalMs: 1_000 });
latchkey.subscribe((happened) => {
  const event = liveViewOf(happened, Date.now(), reporting.id);
  if (event !== undefined) tell({ kind: "event", event });
});

const listening = await listen(server, { port });
const workers = startWorkers();
tell({ kind: "listening", port: listening.port });

process.on("message", () => void end());

async function end(): Promise<void> {
  await listening.close();
  await workers.stop();
  await reporting.stop();
  await latchkey.close({ drainMs: 1_000 });
  process.exit();
}

import { within } from "../../http/within.ts";
import { createLatchkey, type Latchkey } from "../../latchkey.ts";
import {
  completer,
  reaper,
  reconciler,
  relay,
  startWorkers,
  sweeper,
  type Worker,
} from "../../workers/workers.ts";
import { command, noArguments } from "../command.ts";
import type { Context } from "../context.ts";
import { explained } from "../operations.ts";
import { operatorsOf } from "../operators.ts";
import { shownUrl } from "../secrets.ts";
import { openSharedStore, privacyOf } from "../store-options.ts";
import { chosenWorkers, reconcileHook, type WorkOptions, workOptions } from "../work-plan.ts";
import { refuseMisuse } from "../work-refusals.ts";

export const work = command({
  name: "work",
  summary: "runs the workers: sweeper, reaper, reconciler, relay, completer",
  description:
    "Runs the workers until SIGTERM, which lets the rounds under way end; a second signal ends it at once. Any number may run. What is " +
    "out of the ordinary is logged to stderr, one line of JSON each. The reconciler runs only if it is told whom to ask: one that can ask " +
    "nobody would use up the questions of the service's own, and hand its outcomes to an operator.",
  arguments: noArguments,
  options: workOptions,
  examples: [
    {
      command: "latchkey work --store postgres://app@db/payments",
      does: "ends what crashed, and removes what expired",
    },
    {
      command:
        "latchkey work --relay https://example.com/hooks --complete http://127.0.0.1:3000 --metrics-port 9464",
      does: "delivers messages and finishes requests, too",
    },
    { command: "latchkey work --once --json", does: "one round, and what it did" },
  ],
  async run(context, { options }) {
    refuseMisuse(context, options);
    const { store, url } = await openSharedStore(context, options);
    const reconcile = await reconcileHook(context, options, store.capabilities);
    const latchkey = createLatchkey({
      store,
      tenant: "single",
      ...(reconcile && { reconcile }),
      expiry: options.expiry,
      logger: context.logger,
      logKeys: options["log-keys"],
      ...privacyOf(context, store),
    });
    try {
      const chosen = chosenWorkers(context, options);
      if (options.once) await runOnce(context, latchkey, chosen);
      else await runUntilStopped(context, { latchkey, options, chosen, where: shownUrl(url) });
    } catch (error) {
      throw explained(error, () => shownUrl(url));
    } finally {
      await latchkey.close({ drainMs: options.drain });
    }
  },
});

async function runOnce(
  context: Context,
  latchkey: Latchkey,
  chosen: ReturnType<typeof chosenWorkers>,
): Promise<void> {
  const workers: Worker<unknown>[] = [];
  if (chosen.sweeper) workers.push(sweeper(latchkey, chosen.sweeper));
  if (chosen.reaper) workers.push(reaper(latchkey, chosen.reaper));
  if (chosen.reconciler) workers.push(reconciler(latchkey, chosen.reconciler));
  if (chosen.relay) workers.push(relay(latchkey, chosen.relay));
  if (chosen.completer) workers.push(completer(latchkey, chosen.completer));
  const counts: Record<string, unknown> = {};
  for (const worker of workers) counts[worker.name] = await worker.runOnce();
  await context.answer({ workers: counts }, () =>
    Object.entries(counts)
      .map(([name, count]) => `${name}: ${JSON.stringify(count)}`)
      .join("\n"),
  );
}

async function runUntilStopped(
  context: Context,
  {
    latchkey,
    options,
    chosen,
    where,
  }: {
    readonly latchkey: Latchkey;
    readonly options: WorkOptions;
    readonly chosen: ReturnType<typeof chosenWorkers>;
    readonly where: string;
  },
): Promise<void> {
  const { "metrics-port": metricsPort, "admin-port": adminPort } = options;
  const stopped = context.untilStopped();
  // A store that cannot be reached is said before anything runs, instead of in every round.
  await latchkey.audit({ limit: 1 });
  const closing: (() => Promise<void>)[] = [];
  try {
    const told: Record<string, unknown> = { store: where };
    if (metricsPort !== undefined) {
      const { serveMetrics } = await import("../../observe/prometheus.ts");
      const token = context.env.LATCHKEY_METRICS_TOKEN;
      context.secrets.add(token);
      const host = options["metrics-host"];
      const server = await serveMetrics(latchkey, { port: metricsPort, host, ...(token ? { token } : {}) });
      closing.push(() => server.close());
      told.metrics = `${server.url}/metrics`;
    }
    if (adminPort !== undefined) {
      const operators = await operatorsOf(context, options.operators);
      const { serveAdmin } = await import("../../admin/admin.ts");
      const host = options["admin-host"];
      const server = await serveAdmin(latchkey, { port: adminPort, host, operators });
      closing.push(() => server.close());
      told.admin = server.url;
    }
    const { reportActivity } = await import("../../admin/admin.ts");
    const reporting = reportActivity(latchkey, { role: "worker" });
    closing.push(() => reporting.stop());
    const workers = startWorkers(latchkey, chosen);
    closing.unshift(() => workers.stop());
    context.logger.info({ ...told, workers: workers.names }, "the workers are running");
    const signal = await stopped;
    context.logger.info({ signal }, "the workers end after the rounds that they are in");
  } finally {
    // A round that hangs is not waited for: what it had claimed is somebody else's after its lease.
    await within(options.drain, Promise.all(closing.map((close) => close())));
  }
}

import { createLatchkey, type Latchkey } from "../../latchkey.ts";
import {
  completer,
  dispatchTo,
  reaper,
  relay,
  startWorkers,
  sweeper,
  toWebhook,
  type Worker,
  type WorkersOptions,
} from "../../workers/workers.ts";
import { command, type Input, jsonOption, noArguments } from "../command.ts";
import type { Context } from "../context.ts";
import { usage } from "../failure.ts";
import { jsonLog } from "../json-log.ts";
import { explained } from "../operations.ts";
import { operatorsOf } from "../operators.ts";
import { choice, choicesOf, duration, flag, text, wholeNumber, withDefault } from "../option.ts";
import { shownUrl } from "../secrets.ts";
import { openSharedStore, privacyOf, storeOptions } from "../store-options.ts";

const workerNames = ["sweeper", "reaper", "relay", "completer"] as const;
type WorkerName = (typeof workerNames)[number];

const port = (description: string) => wholeNumber({ placeholder: "PORT", description, min: 0, max: 65_535 });

const options = {
  ...storeOptions,
  partitioned: flag("The tables were made by migrate --partitioned."),
  workers: choicesOf(workerNames, {
    placeholder: "NAMES",
    description: "Which ones run, separated by commas.",
    byDefault: "sweeper, reaper, and what has been told where to send to",
  }),
  relay: text({
    placeholder: "URL",
    description: "Where messages of the outbox are delivered, signed with LATCHKEY_WEBHOOK_SECRET.",
  }),
  complete: text({
    placeholder: "URL",
    description: "The service that accepted and half-done requests are sent to.",
  }),
  "tenant-header": text({
    placeholder: "NAME",
    description: "With --complete: the header by which the service knows the tenant; its scope is sent.",
  }),
  expiry: withDefault(
    choice(["delete", "soft"], {
      placeholder: "WHAT",
      description:
        "Whether expired records are deleted, or kept without their response; as the service has it.",
    }),
    "delete",
  ),
  "metrics-port": port("Serves GET /metrics and /healthz here; the token is LATCHKEY_METRICS_TOKEN, if any."),
  "metrics-host": withDefault(text({ placeholder: "HOST", description: "Where that listens." }), "127.0.0.1"),
  "admin-port": port("Serves the admin API and the console here; needs operators."),
  "admin-host": withDefault(text({ placeholder: "HOST", description: "Where that listens." }), "127.0.0.1"),
  operators: text({
    placeholder: "FILE",
    description: 'Who may use the admin API: [{"name":"ada","token":"…","readOnly":true}].',
    byDefault: "$LATCHKEY_OPERATORS, as the same JSON or as name:token,name:token:read-only",
    isFile: true,
  }),
  "log-keys": withDefault(
    choice(["plain", "digest"], {
      placeholder: "HOW",
      description: "Whether keys are logged as they are, or as digests of them.",
    }),
    "plain",
  ),
  drain: withDefault(
    duration({
      placeholder: "TIME",
      description: "How long the rounds under way may take when it is told to end.",
    }),
    "10s",
  ),
  once: flag("One round of each worker, and then it ends: for cron."),
  ...jsonOption,
};

type Options = Input<typeof options>["options"];

export const work = command({
  name: "work",
  summary: "runs the workers: sweeper, reaper, relay, completer",
  description:
    "Runs the workers until SIGTERM, which lets the rounds under way end; a second signal ends it at once. Any number may run. What is " +
    "out of the ordinary is logged to stderr, one line of JSON each. Unknown outcomes are asked about where the reconcile hooks are: by " +
    "the workers of the service or of the gateway.",
  arguments: noArguments,
  options,
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
    const { store, url } = await openSharedStore(context, options);
    const latchkey = createLatchkey({
      store,
      tenant: "single",
      expiry: options.expiry,
      logger: jsonLog(context.secrets),
      logKeys: options["log-keys"],
      ...privacyOf(context),
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

/** Which workers run, and how; what was not told where to send to does not. */
function chosenWorkers(context: Context, options: Options): Required<Pick<WorkersOptions, WorkerName>> {
  const targets = { relay: options.relay, completer: options.complete };
  const byDefault: readonly WorkerName[] = workerNames.filter(
    (name) => !(name in targets) || targets[name as "relay"],
  );
  const chosen = new Set(options.workers ?? byDefault);
  if (chosen.has("relay") && !targets.relay)
    throw usage("the relay has to know where messages go: --relay URL");
  if (chosen.has("completer") && !targets.completer) {
    throw usage("the completer has to know which service executes requests: --complete URL");
  }
  if (options["tenant-header"] !== undefined && !targets.completer) {
    throw usage("--tenant-header is for what is sent to the service: add --complete URL");
  }
  return {
    sweeper: chosen.has("sweeper") ? {} : false,
    reaper: chosen.has("reaper") ? {} : false,
    relay: chosen.has("relay") && targets.relay ? { deliver: delivery(context, targets.relay) } : false,
    completer:
      chosen.has("completer") && targets.completer
        ? { dispatch: dispatch(targets.completer, options["tenant-header"]) }
        : false,
  };
}

function delivery({ env, secrets }: Context, relayUrl: string) {
  const given = env.LATCHKEY_WEBHOOK_SECRET;
  if (!given) {
    throw usage(
      "messages are signed, so that receivers can tell who sends them: set LATCHKEY_WEBHOOK_SECRET (whsec_…)",
    );
  }
  const all = given.split(",").map((secret) => secret.trim());
  for (const secret of all) secrets.add(secret);
  return toWebhook({ url: httpUrl("--relay", relayUrl), secrets: all });
}

function dispatch(serviceUrl: string, tenantHeader: string | undefined) {
  return dispatchTo(httpUrl("--complete", serviceUrl), ({ scope }) => {
    // The tenant's part of the scope ends with the first space, which no tenant's name has.
    return tenantHeader === undefined ? {} : { [tenantHeader]: scope.split(" ", 1)[0] ?? scope };
  });
}

function httpUrl(name: string, given: string): URL {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url?.protocol === "http:" || url?.protocol === "https:") return url;
  throw usage(`${name} must be an http:// or https:// URL`);
}

async function runOnce(
  context: Context,
  latchkey: Latchkey,
  chosen: ReturnType<typeof chosenWorkers>,
): Promise<void> {
  const workers: Worker<unknown>[] = [];
  if (chosen.sweeper) workers.push(sweeper(latchkey, chosen.sweeper));
  if (chosen.reaper) workers.push(reaper(latchkey, chosen.reaper));
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
    readonly options: Options;
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
    const workers = startWorkers(latchkey, { reconciler: false, ...chosen });
    closing.unshift(() => workers.stop());
    jsonLog(context.secrets).info({ ...told, workers: workers.names }, "the workers are running");
    const signal = await stopped;
    jsonLog(context.secrets).info({ signal }, "the workers end after the rounds that they are in");
  } finally {
    await withinDrain(options.drain, closing);
  }
}

/** A round that hangs is not waited for: what it had claimed is somebody else's after its lease. */
async function withinDrain(drainMs: number, closing: readonly (() => Promise<void>)[]): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, drainMs);
  });
  await Promise.race([Promise.all(closing.map((close) => close())), late]);
  clearTimeout(timer);
}

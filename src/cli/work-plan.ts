import { resolvePolicy } from "../core/policy.ts";
import { headerAllowList } from "../core/response.ts";
import type { Capabilities } from "../core/store.ts";
import type { ReconcileHook } from "../operation/reconciliation.ts";
import { dispatchTo, toWebhook, type WorkersOptions } from "../workers/workers.ts";
import { jsonOption } from "./command.ts";
import type { Context } from "./context.ts";
import { usage } from "./failure.ts";
import {
  choice,
  choicesOf,
  duration,
  flag,
  text,
  type ValuesOf,
  wholeNumber,
  withDefault,
} from "./option.ts";
import { storeOptions } from "./store-options.ts";

const workerNames = ["sweeper", "reaper", "reconciler", "relay", "completer"] as const;
type WorkerName = (typeof workerNames)[number];

const port = (description: string) => wholeNumber({ placeholder: "PORT", description, min: 0, max: 65_535 });
const host = text({ placeholder: "HOST", description: "Where that listens.", byDefault: "127.0.0.1" });

export const workOptions = {
  ...storeOptions,
  partitioned: flag("The tables were made by migrate --partitioned."),
  workers: choicesOf(workerNames, {
    placeholder: "NAMES",
    description: "Which ones run, separated by commas.",
    byDefault: "sweeper, reaper, and what has been told where to send to",
  }),
  reconcile: text({
    placeholder: "URL",
    description:
      "Asked with GET about each unknown outcome; {key}, {tenant} and {route} are put in, of which the first two must be there: two callers may " +
      "use the same key. 200: it was executed, and retries get this answer. 404: it was not, and will not be. Anything else says nothing. " +
      "LATCHKEY_RECONCILE_AUTHORIZATION is sent as Authorization.",
  }),
  "single-tenant": flag(
    "With --reconcile: all callers share one key space, so that {tenant} may be left out.",
  ),
  "reconcile-status": wholeNumber({
    placeholder: "N",
    description: "With --reconcile: the status that retries get.",
    byDefault: "that of the answer",
    min: 200,
    max: 599,
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
    description: "With --complete: the header that tells the service which tenant a request is for.",
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
  "metrics-host": host,
  "admin-port": port("Serves the admin API and the console here; needs operators."),
  "admin-host": host,
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

export type WorkOptions = ValuesOf<typeof workOptions>;

/** Which workers run, and how; what was not told where to send to does not. */
export function chosenWorkers(
  context: Context,
  options: WorkOptions,
): Required<Pick<WorkersOptions, WorkerName>> {
  const targets = { reconciler: options.reconcile, relay: options.relay, completer: options.complete };
  const byDefault = workerNames.filter((name) => !isTold(name) || targets[name] !== undefined);
  const chosen = new Set(options.workers ?? byDefault);
  return {
    sweeper: chosen.has("sweeper") ? {} : false,
    reaper: chosen.has("reaper") ? {} : false,
    reconciler: chosen.has("reconciler") ? {} : false,
    relay: chosen.has("relay") && targets.relay ? { deliver: delivery(context, targets.relay) } : false,
    completer:
      chosen.has("completer") && targets.completer
        ? { dispatch: dispatch(targets.completer, options["tenant-header"]) }
        : false,
  };
}

/** The option that tells a worker where to send to. */
export const told = { reconciler: "reconcile", relay: "relay", completer: "complete" } as const;

function isTold(name: WorkerName): name is keyof typeof told {
  return name in told;
}

/** As the gateway asks, with the same meaning of each answer. */
export async function reconcileHook(
  { env, secrets }: Context,
  options: WorkOptions,
  capabilities: Capabilities,
): Promise<ReconcileHook | undefined> {
  const { reconcile, "reconcile-status": answerStatus = "same" } = options;
  if (reconcile === undefined) return undefined;
  const { origin } = httpUrl("--reconcile", reconcile.replaceAll(/[{}]/g, ""));
  const authorization = env.LATCHKEY_RECONCILE_AUTHORIZATION;
  secrets.add(authorization);
  // Loaded here, because nothing else needs an HTTP client of its own.
  const { reconcileBy } = await import("../gateway/reconcile.ts");
  const { responseBytesMax, replayHeaders } = resolvePolicy(capabilities, {}, {});
  return reconcileBy(
    {
      url: reconcile,
      executed: [200],
      notExecuted: [404],
      answerStatus,
      timeoutMs: askMs,
      ...(authorization ? { headers: { authorization } } : {}),
    },
    { upstream: origin, responseBytesMax, allowedHeaders: headerAllowList(replayHeaders) },
  );
}

const askMs = 10_000; // A third of what the reconciler grants.

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
  return dispatchTo(httpUrl("--complete", serviceUrl), ({ tenant }) =>
    tenantHeader === undefined ? {} : { [tenantHeader]: tenant },
  );
}

function httpUrl(name: string, given: string): URL {
  const url = URL.canParse(given) ? new URL(given) : undefined;
  if (url?.protocol === "http:" || url?.protocol === "https:") return url;
  throw usage(`${name} must be an http:// or https:// URL`);
}

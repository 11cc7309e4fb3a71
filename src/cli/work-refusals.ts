import { questionProblems } from "../gateway/config/route-checks.ts";
import type { Context } from "./context.ts";
import { usage } from "./failure.ts";
import { told, type WorkOptions } from "./work-plan.ts";

/** Refuses, before anything is opened, what would be ignored and what would settle outcomes wrongly. */
export function refuseMisuse({ env }: Context, options: WorkOptions): void {
  for (const [name, needed, why] of dependents) {
    if (isGiven(options[name]) && !isGiven(options[needed])) throw usage(`--${name} ${why}`);
  }
  for (const name of ["admin-port", "metrics-port"] as const) {
    if (options.once && isGiven(options[name])) {
      throw usage(
        `--once ends after one round, so that nobody could rely on --${name}: leave one of them out`,
      );
    }
  }
  refuseMismatchOfWorkers(options);
  if (options.reconcile !== undefined) refuseQuestion(env, options, options.reconcile);
}

type Name = keyof WorkOptions;

/** What means nothing without another option, and was meant to do something. */
const dependents: readonly (readonly [name: Name, needed: Name, why: string])[] = [
  ["reconcile-status", "reconcile", "is for answers to what is asked: add --reconcile URL"],
  ["single-tenant", "reconcile", "is about what is asked: add --reconcile URL"],
  ["tenant-header", "complete", "is for what is sent to the service: add --complete URL"],
  ["metrics-host", "metrics-port", "is for metrics, which are not served: add --metrics-port PORT"],
  ["admin-host", "admin-port", "is for the admin API, which is not served: add --admin-port PORT"],
  ["operators", "admin-port", "is for the admin API, which is not served: add --admin-port PORT"],
];

function isGiven(value: WorkOptions[Name]): boolean {
  return value !== undefined && value !== false;
}

/** Some workers have to be told where to send to, and only those that run are to be told. */
function refuseMismatchOfWorkers({ workers, ...options }: WorkOptions): void {
  if (workers === undefined) return;
  for (const name of ["reconciler", "relay", "completer"] as const) {
    const option = told[name];
    const runs = workers.includes(name);
    if (runs && !isGiven(options[option])) {
      throw usage(`the ${name} has to be told where to send to: --${option} URL`);
    }
    if (!runs && isGiven(options[option])) {
      throw usage(
        `--${option} is for the ${name}, which does not run: add ${name} to --workers, or leave --${option} out`,
      );
    }
  }
}

function refuseQuestion(env: NodeJS.ProcessEnv, options: WorkOptions, url: string): void {
  if (env.LATCHKEY_HASH_KEYS) {
    throw usage(
      "keys are stored hashed, so that nobody here knows what to put in for {key}: leave --reconcile out, and let the service or an operator settle",
    );
  }
  const problems = questionProblems(url, options["single-tenant"] ? undefined : tenantMeaning);
  if (problems.length > 0) throw usage(`--reconcile ${problems.join("; it ")}`);
}

const tenantMeaning =
  "as the service names its callers; not needed with --single-tenant, where they share one key space";

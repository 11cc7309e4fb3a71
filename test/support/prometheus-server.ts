import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { mkdtemp, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { onPath, unpackDebianPackages } from "./debian-packages.ts";
import { lastingPort, type ServerProcess, startServerProcess } from "./server-process.ts";

const run = promisify(execFile);

export interface PrometheusOptions {
  /** What it scrapes, as `host:port`, by the name of the job. */
  readonly jobs: Readonly<Record<string, readonly string[]>>;
  readonly scrapeIntervalMs: number;
  /** Files of rules, which are evaluated as often as targets are scraped. */
  readonly ruleFiles?: readonly string[];
}

/** A series of one point, or of many. */
export interface Series {
  readonly labels: Readonly<Record<string, string>>;
  /** Seconds since 1970, and the value. */
  readonly points: readonly (readonly [seconds: number, value: number])[];
}

export interface RangeOptions {
  readonly start: number;
  readonly end: number;
  readonly stepSeconds: number;
}

/** A Prometheus that was started for a test. */
export interface PrometheusServer extends ServerProcess {
  /** What an expression says now. One that cannot be parsed is thrown, with what the server says about it. */
  query(expression: string): Promise<readonly Series[]>;
  queryRange(expression: string, range: RangeOptions): Promise<readonly Series[]>;
  /** What the server knows about something, by its path below `/api/v1/`. */
  ask(path: string): Promise<unknown>;
}

/** A Prometheus that keeps what it scrapes in a folder of its own; gone with this process. */
export async function startPrometheus(options: PrometheusOptions): Promise<PrometheusServer> {
  const { prometheus } = await findPrometheus();
  const folder = await mkdtemp(join(tmpdir(), "latchkey-prometheus-"));
  const settings = join(folder, "prometheus.yml");
  await writeFile(settings, settingsText(options));
  const port = await lastingPort();
  const url = `http://127.0.0.1:${port}`;
  const started = await startServerProcess({
    command: prometheus,
    args: [
      `--config.file=${settings}`,
      `--storage.tsdb.path=${join(folder, "data")}`,
      `--web.listen-address=127.0.0.1:${port}`,
      "--log.level=warn",
    ],
    folder,
    ready: async () => ((await fetch(`${url}/-/ready`)).ok ? url : undefined),
    readyWithinMs: 20_000,
  });

  async function ask(path: string): Promise<unknown> {
    const response = await fetch(`${url}/api/v1/${path}`);
    const answer = (await response.json()) as { status: string; data: unknown; error?: string };
    if (answer.status !== "success") throw new Error(`Prometheus refused ${path}: ${answer.error}`);
    return answer.data;
  }
  async function series(path: string, parameters: Record<string, string>): Promise<Series[]> {
    const { result } = (await ask(`${path}?${new URLSearchParams(parameters)}`)) as QueryResult;
    return result.map(({ metric, value, values }) => ({
      labels: metric,
      points: (values ?? (value ? [value] : [])).map(([at, text]) => [at, numberOf(text)] as const),
    }));
  }
  return {
    ...started,
    ask,
    query: (query) => series("query", { query }),
    queryRange: (query, { start, end, stepSeconds }) =>
      series("query_range", { query, start: String(start), end: String(end), step: String(stepSeconds) }),
  };
}

interface QueryResult {
  readonly result: readonly {
    readonly metric: Record<string, string>;
    readonly value?: readonly [number, string];
    readonly values?: readonly (readonly [number, string])[];
  }[];
}

/** Prometheus spells what JSON cannot. */
function numberOf(text: string): number {
  const spelled: Readonly<Record<string, number>> = { "+Inf": Infinity, "-Inf": -Infinity };
  return spelled[text] ?? Number(text);
}

function settingsText({ jobs, scrapeIntervalMs, ruleFiles = [] }: PrometheusOptions): string {
  // JSON is YAML.
  return JSON.stringify({
    global: {
      scrape_interval: `${scrapeIntervalMs}ms`,
      scrape_timeout: `${scrapeIntervalMs}ms`,
      evaluation_interval: `${scrapeIntervalMs}ms`,
    },
    rule_files: ruleFiles,
    scrape_configs: Object.entries(jobs).map(([job, targets]) => ({
      job_name: job,
      static_configs: [{ targets }],
    })),
  });
}

/** Runs promtool in a folder; answers what it printed, and throws that if it found fault. */
export async function promtool(args: readonly string[], cwd: string): Promise<string> {
  const { promtool: command } = await findPrometheus();
  try {
    const { stdout, stderr } = await run(command, args, { cwd, maxBuffer: outputBytesMax });
    return stdout + stderr;
  } catch (error) {
    const { stdout = "", stderr = "" } = error as { stdout?: string; stderr?: string };
    throw new Error(`promtool ${args.join(" ")} found fault:\n${stdout}${stderr}`, { cause: error });
  }
}

const outputBytesMax = 16 * 1024 * 1024; // A test of rules that fails prints every alert that it saw.

interface Programs {
  readonly prometheus: string;
  readonly promtool: string;
}

/** From the folder in `LATCHKEY_TEST_PROMETHEUS`, or from PATH, or from Debian's package. */
async function findPrometheus(): Promise<Programs> {
  const ownFolder = process.env.LATCHKEY_TEST_PROMETHEUS;
  if (ownFolder) return programsIn(ownFolder);
  const [prometheus, tool] = [onPath("prometheus"), onPath("promtool")];
  if (prometheus !== undefined && tool !== undefined) return { prometheus, promtool: tool };
  try {
    const folder = join(await unpackDebianPackages({ packages: ["prometheus"] }), "usr/bin");
    return { prometheus: join(folder, "prometheus"), promtool: join(folder, "promtool") };
  } catch (cause) {
    throw new Error(
      "No Prometheus for the tests: put prometheus and promtool on PATH, or set LATCHKEY_TEST_PROMETHEUS to the folder " +
        "that holds them (a release from prometheus.io, unpacked, is one), or run where apt-get can download Debian's " +
        "package (19 MB, no root needed).",
      { cause },
    );
  }
}

function programsIn(folder: string): Programs {
  const programs = { prometheus: join(folder, "prometheus"), promtool: join(folder, "promtool") };
  for (const path of Object.values(programs)) {
    if (!existsSync(path)) {
      throw new Error(
        `There is no ${path}: LATCHKEY_TEST_PROMETHEUS has to name a folder with prometheus and promtool.`,
      );
    }
  }
  return programs;
}

import { setTimeout as delay } from "node:timers/promises";
import type { ProcessView, StatsView, WorkerView } from "../../admin/views.ts";
import { command, jsonOption, noArguments } from "../command.ts";
import { usage } from "../failure.ts";
import { withOperations } from "../operations.ts";
import { duration, flag } from "../option.ts";
import { type Screen, visible } from "../screen.ts";
import { storeOptions } from "../store-options.ts";
import { type Column, facts, Table } from "../table.ts";
import { lengthOfTime, relative } from "../times.ts";

export const stats = command({
  name: "stats",
  summary: "shows what runs, what is unknown, what waits, and who is at work",
  description:
    "What somebody on call wants to know first. Processes are those that have told of themselves lately: gateways, workers, and " +
    "services that call reportActivity. With --watch --json each look is one line of JSON.",
  arguments: noArguments,
  options: {
    ...storeOptions,
    watch: flag("Looks again and again until it is interrupted.", "w"),
    every: duration({
      placeholder: "TIME",
      description: "With --watch: the time between two looks.",
      byDefault: "2s",
    }),
    ...jsonOption,
  },
  examples: [{ command: "latchkey stats --watch", does: "a view that keeps itself up to date" }],
  async run(context, { options }) {
    const { watch, every = everyMs } = options;
    if (options.every !== undefined && !watch) {
      throw usage("--every is the time between two looks, and there is only one: add --watch");
    }
    return withOperations(context, options, async ({ administration }) => {
      const { stdout } = context;
      // A terminal shows the latest look in place of the one before.
      const clear = watch && stdout.isTerminal && !context.isJson ? "\u001b[H\u001b[2J" : "";
      for (;;) {
        const seen = await administration.stats();
        await context.answer(seen, () => clear + statsText(stdout, seen));
        if (!watch) return;
        if (clear === "" && !context.isJson) await stdout.write("\n");
        await delay(every);
      }
    });
  },
});

const everyMs = 2_000; // As --help says. Somebody is looking.

function statsText(screen: Screen, stats: StatsView): string {
  const { store, running, unknown, outbox, processes, now } = stats;
  const breaker = store.breaker === "closed" || store.breaker === "off" ? "" : `, breaker ${store.breaker}`;
  const oldest = unknown.oldestMs === 0 ? "" : `, the oldest for ${lengthOfTime(unknown.oldestMs)}`;
  const rows: (readonly [string, string])[] = [
    ["store", `${store.name}${breaker}`],
    ["running", running >= runningMax ? `${running} or more` : String(running)],
    ["unknown", `${unknown.waiting} being asked about${oldest}`],
    ["for an operator", alarming(screen, unknown.escalated)],
  ];
  if (outbox !== null) {
    const due = outbox.oldestDueMs === 0 ? "" : `, the oldest due for ${lengthOfTime(outbox.oldestDueMs)}`;
    rows.push(["outbox", `${outbox.waiting} waiting${due}`], ["dead letters", alarming(screen, outbox.dead)]);
  }
  return [
    facts(screen, rows),
    ...(processes.length === 0
      ? []
      : [`\n${screen.paint("bold", "processes")}\n`, table(screen, now, processes)]),
  ].join("");
}

const runningMax = 1000; // No more are counted.

function alarming(screen: Screen, count: number): string {
  return count === 0 ? "0" : screen.paint("red", String(count));
}

function table(screen: Screen, now: number, processes: readonly ProcessView[]): string {
  const columns: readonly Column<ProcessView>[] = [
    {
      title: "ALIVE",
      text: ({ isAlive }) => (isAlive ? "yes" : "no"),
      paint: (shown, padded, { isAlive }) => shown.paint(isAlive ? "green" : "red", padded),
    },
    { title: "ROLE", text: ({ role }) => visible(role) },
    { title: "HOST", text: ({ host, pid }) => visible(`${host}:${pid}`), widthMin: 8 },
    { title: "SEEN", text: ({ seenAt }) => relative(seenAt, now), isNumber: true },
    { title: "WORKERS", text: ({ workers }) => visible(workers.map(workerText).join(", ")), widthMin: 8 },
  ];
  return new Table(screen, columns).text(processes);
}

function workerText({ name, errors, lastError }: WorkerView): string {
  return errors === 0 ? name : `${name} (${errors} errors, the latest: ${lastError})`;
}

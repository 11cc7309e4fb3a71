import type { RecordView } from "../../admin/views.ts";
import { recordStates } from "../../core/record.ts";
import { command, jsonOption, noArguments } from "../command.ts";
import { notFound, usage } from "../failure.ts";
import { withOperations } from "../operations.ts";
import { choice, flag, moment, text, wholeNumber, withDefault } from "../option.ts";
import { Progress } from "../progress.ts";
import { recordTable } from "../record-text.ts";
import { visibleJson } from "../screen.ts";
import { storeOptions } from "../store-options.ts";

export const list = command({
  name: "list",
  summary: "shows records, the latest first where the store keeps them so",
  description:
    "Shows the records of which all that is said is true. With --json one page is one document with records, next, order and now; " +
    "with --all --json each record is one line of JSON.",
  arguments: noArguments,
  options: {
    ...storeOptions,
    state: choice(recordStates, { placeholder: "STATE", description: "Only those in this state." }),
    tenant: text({ placeholder: "TENANT", description: "Only those of this tenant." }),
    route: text({ placeholder: "NAME", description: "Only those of the route with this name." }),
    key: text({
      placeholder: "KEY",
      description: "Only those with this key, in whichever scopes it was used.",
    }),
    since: moment({
      placeholder: "TIME",
      description: "Only those first seen at this time or later: 2026-11-16T09:00Z, or 2h for two hours ago.",
    }),
    until: moment({ placeholder: "TIME", description: "Only those first seen before this time." }),
    limit: withDefault(
      wholeNumber({ placeholder: "N", description: "How many on a page.", min: 1, max: 1000 }),
      "50",
    ),
    cursor: text({ placeholder: "CURSOR", description: "The next page: what the page before ended with." }),
    all: flag("All pages, one after the other."),
    ...jsonOption,
  },
  examples: [
    { command: "latchkey list --state unknown", does: "what waits for somebody to find out" },
    { command: "latchkey list --tenant acme --since 1h", does: "what one tenant did in the last hour" },
    { command: "latchkey list --all --json > records.ndjson", does: "everything, one record on a line" },
  ],
  run(context, { options }) {
    const { state, tenant, route, key, since, until, limit, cursor, all } = options;
    if (key !== undefined && tenant === undefined && context.env.LATCHKEY_HASH_KEYS) {
      throw usage(
        "keys are hashed together with their scope, so that a key alone finds nothing: add --tenant",
      );
    }
    return withOperations(context, options, async ({ administration }) => {
      const { stdout, isJson } = context;
      const progress = new Progress(context.stderr, "records", { isQuiet: !all || stdout.isTerminal });
      const query = { state, tenant, route, key, createdFrom: since, createdBefore: until };
      let from = cursor;
      let shown = 0;
      let write: ((records: readonly RecordView[]) => string) | undefined;
      try {
        for (;;) {
          const page = await administration.records({ ...query, limit: all ? pageMax : limit, cursor: from });
          shown += page.records.length;
          from = page.next ?? undefined;
          // A store may look through many records that are not meant before it comes by one that is.
          const isLast = from === undefined || (!all && shown > 0);
          if (isJson && !all) {
            if (isLast) await context.answer(page, () => "");
          } else if (page.records.length > 0) {
            const table = recordTable(stdout, page.now);
            write ??= isJson ? asLines : (records) => table.text(records);
            await stdout.write(write(page.records));
          }
          progress.show(shown);
          if (isLast) break;
        }
      } finally {
        progress.end();
      }
      if (shown === 0) throw notFound("no record is like that");
      if (from !== undefined && !isJson)
        await context.note(`more with --cursor ${from}, or everything with --all`);
    });
  },
});

const pageMax = 1000;

function asLines(records: readonly RecordView[]): string {
  return records.map((record) => `${visibleJson(record)}\n`).join("");
}

import type { DeadLetterView } from "../../admin/views.ts";
import { command, jsonOption } from "../command.ts";
import { confirm } from "../confirm.ts";
import type { Context } from "../context.ts";
import { notFound, refused, usage } from "../failure.ts";
import { changeOptions, type Operations, speakerOf, withOperations } from "../operations.ts";
import { flag, text, wholeNumber, withDefault } from "../option.ts";
import { Progress } from "../progress.ts";
import { visible } from "../screen.ts";
import { storeOptions } from "../store-options.ts";
import { type Column, Table } from "../table.ts";
import { relative } from "../times.ts";

export const deadLetters = command({
  name: "dead-letters",
  summary: "shows messages that could not be delivered, or has them delivered after all",
  description:
    "Lists the messages of the outbox whose deliveries have all failed, the oldest first; requeue gives some of them, or --all, every " +
    "attempt again. With --json a list is one document with deadLetters and next.",
  arguments: {
    synopsis: "[list | requeue ID… | requeue --all]",
    min: 0,
    max: Number.POSITIVE_INFINITY,
    choices: ["list", "requeue"],
  },
  options: {
    ...storeOptions,
    limit: withDefault(
      wholeNumber({ placeholder: "N", description: "How many on a page.", min: 1, max: 1000 }),
      "50",
    ),
    cursor: text({ placeholder: "CURSOR", description: "The next page: what the page before ended with." }),
    all: flag("With requeue: all of them."),
    ...changeOptions,
    ...jsonOption,
  },
  examples: [
    { command: "latchkey dead-letters", does: "what was not delivered, and why" },
    { command: "latchkey dead-letters requeue 17 18", does: "two of them are tried again" },
    { command: "latchkey dead-letters requeue --all --yes", does: "all of them, in a script" },
  ],
  run(context, { options, args: [verb = "list", ...ids] }) {
    if (verb === "list" && (ids.length > 0 || options.all)) {
      throw usage("list shows them a page at a time; with ids, or with --all, it is: dead-letters requeue");
    }
    if (verb === "requeue" && (ids.length === 0) !== options.all) {
      throw usage("requeue needs the ids of messages, or --all");
    }
    return withOperations(context, options, async (operations) => {
      const { latchkey } = operations;
      if (latchkey.store.outbox === undefined) {
        throw refused("no-outbox", `the ${latchkey.store.name} store has no outbox, and so no dead letters`);
      }
      if (verb === "list") return show(context, operations, options);
      const by = speakerOf(context, options);
      if (options.all) return requeueAll(context, operations, { by, yes: options.yes });
      await confirm(context, `Deliver ${ids.length} messages again?`, options);
      const requeued = await operations.administration.requeue({ ids }, by);
      if (requeued === 0) throw notFound("none of these is a dead letter");
      await context.answer(
        { requeued, asked: ids.length, by },
        () => `requeued ${requeued} of ${ids.length}`,
      );
    });
  },
});

async function show(
  context: Context,
  { administration, latchkey }: Operations,
  { limit, cursor }: { readonly limit: number; readonly cursor: string | undefined },
): Promise<void> {
  const page = await administration.deadLetters({ limit, cursor });
  const { now } = await latchkey.list({ limit: 1 });
  if (page.deadLetters.length === 0 && !context.isJson) throw notFound("there are no dead letters");
  await context.answer(page, () => table(context, now).text(page.deadLetters));
  if (page.deadLetters.length === 0) throw notFound("there are no dead letters");
  if (page.next !== null && !context.isJson) await context.note(`more with --cursor ${page.next}`);
}

function table({ stdout }: Context, now: number): Table<DeadLetterView> {
  const columns: readonly Column<DeadLetterView>[] = [
    { title: "ID", text: ({ id }) => visible(id) },
    { title: "TOPIC", text: ({ topic }) => visible(topic), widthMin: 8 },
    { title: "KEY", text: ({ key }) => visible(key), widthMin: 12 },
    { title: "ATTEMPTS", text: ({ attempts }) => String(attempts), isNumber: true },
    { title: "DIED", text: ({ diedAt }) => relative(diedAt, now), isNumber: true },
    { title: "ERROR", text: ({ error }) => visible(error), widthMin: 8 },
  ];
  return new Table(stdout, columns);
}

/** In pages, so that no statement is about more than some hundred of them. */
async function requeueAll(
  context: Context,
  { administration, latchkey }: Operations,
  { by, yes }: { readonly by: string; readonly yes: boolean },
): Promise<void> {
  const { dead } = await latchkey.outboxCounts();
  if (dead === 0) throw notFound("there are no dead letters");
  await confirm(context, `Deliver ${dead} messages again?`, { yes });
  const progress = new Progress(context.stderr, "messages");
  let requeued = 0;
  let cursor: string | undefined;
  try {
    // Those that die again meanwhile are not gone through a second time: the list goes on after the last one.
    do {
      const page = await administration.deadLetters({ limit: batch, cursor });
      const ids = page.deadLetters.map(({ id }) => id);
      if (ids.length > 0) requeued += await administration.requeue({ ids }, by);
      progress.show(requeued, Math.max(dead, requeued));
      cursor = page.next ?? undefined;
    } while (cursor !== undefined);
  } finally {
    progress.end();
  }
  await context.answer({ requeued, by }, () => `requeued ${requeued}`);
}

const batch = 250;

import { readFile } from "node:fs/promises";
import { buffer } from "node:stream/consumers";
import type { ResolveBody } from "../../admin/views.ts";
import { PhaseError } from "../../core/errors.ts";
import { command, type Input, jsonOption } from "../command.ts";
import { confirm } from "../confirm.ts";
import type { Context } from "../context.ts";
import { failed, refused, usage } from "../failure.ts";
import { headersOf } from "../header-lines.ts";
import { changeOptions, recordNamed, recordOptions, speakerOf, withOperations } from "../operations.ts";
import { flag, text, texts, wholeNumber } from "../option.ts";
import { visible } from "../screen.ts";
import { storeOptions } from "../store-options.ts";

const options = {
  ...storeOptions,
  ...recordOptions,
  executed: flag(
    "It was executed, and retries get the answer that is given here. A decline is an answer, too.",
  ),
  status: wholeNumber({
    placeholder: "N",
    description: "With --executed: the status of the answer.",
    min: 200,
    max: 599,
  }),
  body: text({
    placeholder: "FILE",
    description: "With --executed: the body of the answer, byte for byte; - reads it from stdin.",
    isFile: true,
  }),
  header: texts({
    placeholder: "HEADER",
    description: 'With --executed: a header of the answer, as "name: value".',
  }),
  "not-executed": flag(
    "It is proven that nothing happened, and that nothing is still on its way: it may be tried.",
  ),
  "effect-done": flag("The external call that was open has happened: the operation goes on from there."),
  result: text({
    placeholder: "JSON",
    description: "With --effect-done: what the call would have returned.",
  }),
  reference: text({ placeholder: "ID", description: "With --effect-done: the provider's own id for it." }),
  phase: text({
    placeholder: "NAME",
    description: "With --effect-done: which call, where more than one is open.",
  }),
  resume: flag("Nothing is in doubt but why it stopped: the operation goes on after what is recorded."),
  reason: text({ placeholder: "TEXT", description: "With --not-executed or --resume: how that is known." }),
  ...changeOptions,
  ...jsonOption,
};

type Options = Input<typeof options>["options"];

export const resolve = command({
  name: "resolve",
  summary: "says what became of a request whose outcome is unknown",
  description:
    "Settles an unknown outcome for somebody who has found it out. Only the attempt that was looked at is settled, and only if it is " +
    "still unknown. The routes of the service are not known here: their redaction is not applied to a body that is given here.",
  arguments: {
    synopsis: "KEY (--executed --status N | --not-executed | --effect-done | --resume)",
    min: 1,
    max: 1,
  },
  options,
  examples: [
    {
      command:
        'latchkey resolve order-17 --executed --status 201 --body answer.json --header "content-type: application/json"',
      does: "the provider has the charge: retries get this answer",
    },
    {
      command: 'latchkey resolve order-17 --not-executed --reason "provider confirmed by phone"',
      does: "a retry may execute it",
    },
    {
      command: `latchkey resolve order-17 --effect-done --result '{"id":"ch_1"}' --reference ch_1`,
      does: "the operation goes on after the call that was in doubt",
    },
  ],
  async run(context, { options, args: [key = ""] }) {
    const { verdict, headerNames, does } = await verdictOf(context, options);
    // What the operator gives is to be replayed, whether or not the service would have kept such a header.
    const policy = headerNames.length === 0 ? {} : { replayHeaders: headerNames };
    await withOperations(
      context,
      options,
      async (operations) => {
        const record = await recordNamed(context, operations, key, options);
        const { scope, attempt, state } = record;
        if (state !== "unknown") throw notUnknown(state);
        await confirm(
          context,
          `${visible(record.key)} in ${visible(scope)} is unknown (${visible(record.reason ?? "")}). ${does} Go on?`,
          options,
        );
        const by = speakerOf(context, options);
        const resolved = await operations.administration
          .resolve({ scope, key: record.key, attempt, verdict }, by)
          .catch(refuseMisfit);
        if (resolved.kind === "not-unknown") throw notUnknown(resolved.state);
        if (resolved.kind === "still-unknown") throw refused("still-unknown", "it is still unknown");
        const { expiresAt } = resolved;
        await context.answer(
          { kind: "resolved", scope, key: record.key, attempt, verdict: verdict.kind, by, expiresAt },
          () => `resolved: ${visible(record.key)} is ${outcomes[verdict.kind]}`,
        );
      },
      policy,
    );
  },
});

type Verdict = ResolveBody["verdict"];

const outcomes: Readonly<Record<Verdict["kind"], string>> = {
  completed: "completed, and retries get the answer",
  "effect-done": "known to have happened, and goes on from there",
  "not-executed": "known not to have been executed, and may be tried again",
  resume: "to go on after what is recorded",
};

function notUnknown(state: string) {
  return refused("not-unknown", `its outcome is not unknown: the record is ${state}, and stays so`);
}

/** A verdict that does not fit what the operation has recorded. */
function refuseMisfit(error: unknown): never {
  throw error instanceof PhaseError ? refused(error.code, error.message) : error;
}

/** Which options belong to which verdict. */
const verdicts = {
  executed: ["status", "body", "header"],
  "not-executed": ["reason"],
  "effect-done": ["result", "reference", "phase"],
  resume: ["reason"],
} as const satisfies Readonly<Record<string, readonly (keyof Options)[]>>;

async function verdictOf(
  context: Context,
  options: Options,
): Promise<{ readonly verdict: Verdict; readonly headerNames: readonly string[]; readonly does: string }> {
  const chosen = chosenVerdict(options);
  const reason = options.reason === undefined ? {} : { reason: options.reason };
  switch (chosen) {
    case "executed": {
      const { status, body } = options;
      if (status === undefined) throw usage("--executed needs the status of the answer: --status N");
      const headers = headersOf(options.header);
      const bytes = body === undefined ? {} : { body: await bytesOf(context, body) };
      return {
        verdict: { kind: "completed", response: { status, headers, ...bytes } },
        headerNames: Object.keys(headers),
        does: `Retries will get ${status}.`,
      };
    }
    case "effect-done": {
      if (options.result === undefined)
        throw usage("--effect-done needs what the call returned: --result JSON");
      const { reference, phase } = options;
      return {
        verdict: {
          kind: "effect-done",
          result: jsonOf(options.result),
          ...(reference === undefined ? {} : { reference }),
          ...(phase === undefined ? {} : { phase }),
        },
        headerNames: [],
        does: "The operation goes on after its external call.",
      };
    }
    case "not-executed":
      return {
        verdict: { kind: chosen, ...reason },
        headerNames: [],
        does: "The next retry will be executed.",
      };
    case "resume":
      return { verdict: { kind: chosen, ...reason }, headerNames: [], does: "The operation goes on." };
    default:
      return chosen satisfies never;
  }
}

function chosenVerdict(options: Options): keyof typeof verdicts {
  const names = Object.keys(verdicts) as (keyof typeof verdicts)[];
  const [chosen, another] = names.filter((name) => options[name]);
  if (chosen === undefined || another !== undefined) {
    throw usage(`resolve needs one verdict: ${names.map((name) => `--${name}`).join(", ")}`);
  }
  const allowed: readonly string[] = verdicts[chosen];
  for (const name of new Set(Object.values(verdicts).flat())) {
    const given = options[name];
    const isGiven = Array.isArray(given) ? given.length > 0 : given !== undefined;
    if (isGiven && !allowed.includes(name))
      throw usage(`--${name} says nothing about --${chosen}: leave it out`);
  }
  return chosen;
}

async function bytesOf({ stdin }: Context, file: string): Promise<Uint8Array> {
  try {
    return file === "-" ? await buffer(stdin) : await readFile(file);
  } catch (error) {
    throw failed(`${file} cannot be read: ${(error as Error).message}`);
  }
}

function jsonOf(given: string): unknown {
  try {
    return JSON.parse(given);
  } catch {
    throw usage(`--result must be JSON, such as '{"id":"ch_1"}' or null`);
  }
}

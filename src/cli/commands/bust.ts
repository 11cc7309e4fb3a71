import type { Busted } from "../../operation/busting.ts";
import { command, jsonOption } from "../command.ts";
import { confirm } from "../confirm.ts";
import { type Failure, notFound, refused, usage } from "../failure.ts";
import { changeOptions, recordNamed, recordOptions, speakerOf, withOperations } from "../operations.ts";
import { text } from "../option.ts";
import { visible } from "../screen.ts";
import { storeOptions } from "../store-options.ts";

export const bust = command({
  name: "bust",
  summary: "takes the answer of a key away: the next request is executed again",
  description:
    "Takes a stored answer away. The next request with the key does everything again that the first one did, so undo that one's " +
    "effects before. What is running, unknown or half done is refused.",
  arguments: { synopsis: "KEY --reason TEXT", min: 1, max: 1 },
  options: {
    ...storeOptions,
    ...recordOptions,
    reason: text({ placeholder: "TEXT", description: "Why, for the audit trail. Required." }),
    ...changeOptions,
    ...jsonOption,
  },
  examples: [
    {
      command: 'latchkey bust order-17 --tenant acme --reason "answered with a wrong price"',
      does: "asks, and then takes the answer away",
    },
  ],
  run(context, { options, args: [key = ""] }) {
    const { reason } = options;
    if (!reason?.trim())
      throw usage("bust needs --reason TEXT: the audit trail says why an answer was taken away");
    return withOperations(context, options, async (operations) => {
      const record = await recordNamed(context, operations, key, options);
      const { scope, attempt, state, status } = record;
      await confirm(
        context,
        `${visible(record.key)} in ${visible(scope)} is ${state}${status === null ? "" : ` with ${status}`}. ` +
          "Take its answer away? The next request with this key is executed again.",
        options,
      );
      const by = speakerOf(context, options);
      const busted = await operations.administration.bust({ scope, key: record.key, attempt, reason }, by);
      if (busted.kind !== "busted") throw refusalOf(busted, key);
      await context.answer({ kind: "busted", scope, key: record.key, attempt, by, reason }, () => {
        return `busted: the next request with ${visible(record.key)} is executed`;
      });
    });
  },
});

function refusalOf(busted: Exclude<Busted, { kind: "busted" }>, key: string): Failure {
  switch (busted.kind) {
    case "nothing":
      return busted.state === "absent"
        ? notFound(`there is no record for the key ${visible(key)} any more`)
        : refused("nothing-to-bust", "there is no answer to take away: it is expired already");
    case "not-settled":
      return refused("not-settled", `it is ${busted.state} and stays so: ${busted.instead}`);
    case "another-attempt":
      return refused(
        "another-attempt",
        `attempt ${busted.attempt} has answered meanwhile, and its answer stays: look at it, and say it again`,
      );
    default:
      return busted satisfies never;
  }
}

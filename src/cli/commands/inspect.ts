import { command, jsonOption } from "../command.ts";
import { recordNamed, recordOptions, withOperations } from "../operations.ts";
import { recordText } from "../record-text.ts";
import { storeOptions } from "../store-options.ts";

export const inspect = command({
  name: "inspect",
  summary: "shows one record whole: state, phases, timeline, response",
  description:
    "Shows everything that is known about one key. Say --tenant or --scope where the key was used in more than one. What is " +
    "encrypted is shown if LATCHKEY_ENCRYPTION_KEYS has the keys; hashed keys are found if LATCHKEY_HASH_KEYS has the secret.",
  arguments: { synopsis: "KEY", min: 1, max: 1 },
  options: { ...storeOptions, ...recordOptions, ...jsonOption },
  examples: [
    {
      command: "latchkey inspect 8e03978e-40d5-43dd-bc93-6894a57f9324",
      does: "a key that one tenant has used",
    },
    { command: "latchkey inspect order-17 --tenant acme --json", does: "for a program" },
  ],
  run(context, { options, args: [key = ""] }) {
    return withOperations(context, options, async (operations) => {
      const record = await recordNamed(context, operations, key, options);
      await context.answer(record, () => recordText(context.stdout, record));
    });
  },
});

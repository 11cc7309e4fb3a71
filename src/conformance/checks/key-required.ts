import { type Check, fail, pass, warn } from "../check.ts";
import { isRefusal, isSuccess } from "../probe.ts";

export const keyRequired: readonly Check[] = [
  {
    id: "key-required.missing",
    title: "a request without a key is refused with 400",
    async run(probe) {
      const { profile } = probe.settings;
      const answer = await probe.send(probe.operation(), { keys: [] });
      if (isSuccess(answer)) {
        return profile.isKeyRequired
          ? fail(
              `it was executed and answered with ${answer.status}: a client that forgets the key has no protection`,
            )
          : pass(`it was executed, as with ${profile.source}, where keys are optional`);
      }
      if (answer.status === 400) return pass("refused with 400");
      if (isRefusal(answer)) return warn(`refused with ${answer.status}, where 400 is usual`);
      return fail(`answered with ${answer.status}`);
    },
  },
];

import { type Check, fail, pass, skipped } from "../check.ts";
import { differenceOf, isRefusal, isSuccess } from "../probe.ts";

export const errors: readonly Check[] = [
  {
    id: "errors.validation",
    title: "a request that the API refuses is refused again on a retry",
    async run(probe) {
      const valid = probe.operation();
      const operation = { ...valid, body: probe.settings.invalidBody };
      const first = await probe.send(operation);
      if (isSuccess(first)) return skipped("the body that should be refused was accepted: give invalidBody");
      if (!isRefusal(first)) return fail(`a body that should be refused was answered with ${first.status}`);
      const second = await probe.send(operation);
      if (second.status !== first.status) {
        return fail(`refused with ${first.status}, and on the retry answered with ${second.status}`);
      }
      const corrected = await probe.send(valid);
      if (corrected.status >= 500)
        return fail(`the corrected body under the same key was answered with ${corrected.status}`);
      const repeated =
        probe.isReplay(second) || differenceOf(first, second) === undefined
          ? "a retry gets the same refusal"
          : "a retry is examined anew";
      const after = isSuccess(corrected) ? "is executed" : `is refused with ${corrected.status}`;
      return pass(
        `refused with ${first.status}; ${repeated}, and a corrected body under the same key ${after}`,
      );
    },
  },
];

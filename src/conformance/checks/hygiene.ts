import { type Check, fail, pass, skipped, warn } from "../check.ts";
import { differenceOf, isSuccess } from "../probe.ts";
import { misuseStatuses } from "../profiles.ts";

export const hygiene: readonly Check[] = [
  {
    id: "hygiene.other-tenant",
    title: "another caller with the same key never gets the first one's answer",
    async run(probe) {
      const { otherHeaders } = probe.settings;
      if (otherHeaders === undefined) return skipped("give otherHeaders, the credentials of another caller");
      const operation = probe.operation();
      const first = await probe.send(operation);
      const other = await probe.send(operation, { headers: otherHeaders });
      if (other.status === 401 || other.status === 403) {
        return skipped(
          `the other caller was refused with ${other.status}, whatever the key: give credentials that are accepted`,
        );
      }
      if (other.status >= 500) return fail(`the other caller was answered with ${other.status}`);
      if (probe.isReplay(other)) return fail("the other caller was answered with a replay");
      if (isSuccess(other)) {
        if (differenceOf(first, other) !== undefined)
          return pass("the other caller's request was executed as its own");
        return probe.known.tellsApart
          ? fail("the other caller was answered with the first one's answer")
          : warn("both callers are answered alike, so nobody can tell whose answer it was");
      }
      return misuseStatuses.includes(other.status)
        ? warn(
            `the other caller was refused with ${other.status}: it learns that the key exists, and not its answer`,
          )
        : pass(`the other caller was refused with ${other.status}`);
    },
  },
];

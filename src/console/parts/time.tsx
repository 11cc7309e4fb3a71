import { useCallback } from "preact/hooks";
import { useStoreTime } from "../clock.ts";
import { absolute, relative } from "../words.ts";

/** A time as people say it, with the exact one on hover and for machines. */
export function Time({ at }: { readonly at: number }) {
  const shown = useStoreTime(useCallback((now: number) => relative(at, now), [at]));
  return (
    <time dateTime={new Date(at).toISOString()} title={absolute(at)}>
      {shown}
    </time>
  );
}

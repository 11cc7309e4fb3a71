import { LinkButton } from "./link-button.tsx";

interface PagerProps {
  readonly isFirst: boolean;
  readonly latest: string;
  /** Undefined if there is nothing older. */
  readonly older: string | undefined;
  readonly words?: { readonly first: string; readonly next: string };
}

/** A page begins where the last one ended, so one goes on, or back by where one came from, or to the beginning. */
export function Pager({ isFirst, latest, older, words = { first: "Latest", next: "Older" } }: PagerProps) {
  return (
    <nav class="pager" aria-label="More pages">
      <LinkButton href={isFirst ? undefined : latest}>{words.first}</LinkButton>
      <button type="button" disabled={isFirst} onClick={() => history.back()}>
        ← Back
      </button>
      <LinkButton href={older}>{words.next} →</LinkButton>
    </nav>
  );
}

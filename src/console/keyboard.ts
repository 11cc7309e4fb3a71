import { useLayoutEffect } from "preact/hooks";
import { address, go, type PageName } from "./route.ts";

/** `g` and then one of these goes to a page. */
export const goKeys: Readonly<Record<string, PageName>> = {
  o: "overview",
  r: "records",
  u: "unknown",
  d: "dead-letters",
  a: "audit",
};

const chordMs = 1500; // Long enough for two keys in the dark, short enough that a stray `g` is forgotten.

/** The keys that work everywhere, but not while somebody types or answers a dialog. */
export function useKeyboard(actions: { readonly search: () => void; readonly help: () => void }): void {
  // Before the page is painted: whoever sees it can use its keys.
  useLayoutEffect(() => {
    let wentAt = Number.NEGATIVE_INFINITY;
    const pressed = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
      if (document.querySelector("dialog[open]") !== null) return;
      const page = goKeys[event.key];
      if (page !== undefined && event.timeStamp - wentAt < chordMs) {
        wentAt = Number.NEGATIVE_INFINITY;
        event.preventDefault();
        go(address(page));
        return;
      }
      wentAt = event.key === "g" ? event.timeStamp : Number.NEGATIVE_INFINITY;
      if (event.key === "/") {
        event.preventDefault();
        actions.search();
      }
      if (event.key === "?") actions.help();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, [actions]);
}

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || target.matches("input:not([type=checkbox]), textarea, select"))
  );
}

import { onThemeChosen } from "../browser/theme.ts";

/** Calls `listener` when colours change, for what is drawn rather than styled; returns how to stop it. */
export function onColoursChanged(listener: () => void): () => void {
  const stopListening = onThemeChosen(listener);
  system.addEventListener("change", listener);
  return () => {
    stopListening();
    system.removeEventListener("change", listener);
  };
}

const system = matchMedia("(prefers-color-scheme: dark)");

/** What a custom property comes to right now, for a canvas, which knows nothing of style sheets. */
export function colourOf(element: HTMLElement, property: string): string {
  element.style.color = `var(${property})`;
  const { color } = getComputedStyle(element);
  element.style.color = "";
  return color;
}

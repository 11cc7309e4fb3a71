/** `auto` follows the system; the other two are somebody's choice, and outlive the tab. */
export type Theme = "auto" | "light" | "dark";

const themes: readonly Theme[] = ["auto", "light", "dark"];
const storageName = "latchkey-theme";

export function chosenTheme(): Theme {
  const stored = localStorage.getItem(storageName);
  return themes.find((theme) => theme === stored) ?? "auto";
}

export function themeAfter(theme: Theme): Theme {
  return themes[(themes.indexOf(theme) + 1) % themes.length] ?? "auto";
}

export function applyTheme(theme: Theme): void {
  if (theme === "auto") {
    localStorage.removeItem(storageName);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(storageName, theme);
    document.documentElement.dataset.theme = theme;
  }
  for (const listener of listeners) listener();
}

const listeners = new Set<() => void>();

/** Calls `listener` when colours change, for what is drawn rather than styled; returns how to stop it. */
export function onColoursChanged(listener: () => void): () => void {
  listeners.add(listener);
  system.addEventListener("change", listener);
  return () => {
    listeners.delete(listener);
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

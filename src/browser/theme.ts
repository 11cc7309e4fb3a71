/** `auto` follows the system; the other two are somebody's choice, and outlive the tab. */
export type Theme = "auto" | "light" | "dark";

const themes: readonly Theme[] = ["auto", "light", "dark"];
/** One for all pages: console and playground are served from one place, and should not look at odds. */
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

/** Calls `listener` when somebody chose another theme; returns how to stop it. */
export function onThemeChosen(listener: () => void): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

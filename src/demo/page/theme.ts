/** `auto` follows the system; the other two are somebody's choice, and outlive the tab. */
export type Theme = "auto" | "light" | "dark";

const themes: readonly Theme[] = ["auto", "light", "dark"];
// The console's own name for it: both are served from one place, and should not look at odds.
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
}

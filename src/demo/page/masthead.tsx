import { useState } from "preact/hooks";
import { applyTheme, chosenTheme, themeAfter } from "../../browser/theme.ts";
import { ConsoleLink } from "./console-link.tsx";
import icon from "./icon.svg";
import type { Playground } from "./playground.ts";

export function Masthead({
  playground,
  onReset,
}: {
  readonly playground: Playground;
  readonly onReset: () => void;
}) {
  const [theme, setTheme] = useState(chosenTheme);
  const { process, isConnected } = playground;
  const nextTheme = () => {
    const next = themeAfter(theme);
    applyTheme(next);
    setTheme(next);
  };
  return (
    <header>
      <h1>
        <img src={icon} alt="" width="26" height="26" /> Latchkey <span>playground</span>
      </h1>
      <p class="process" role="status">
        {!isConnected ? (
          <strong class="bad">The playground has ended, or cannot be reached: start it again.</strong>
        ) : process.pid === null ? (
          <strong class="bad">payments API: down, restarting…</strong>
        ) : (
          <>
            payments API: process <b>{process.pid}</b>
            {process.restarts > 0 ? `, restarted ${process.restarts}×` : ""}
          </>
        )}
      </p>
      <nav>
        <ConsoleLink playground={playground}>Open the console</ConsoleLink>
        <button type="button" class="quiet" onClick={nextTheme}>
          Theme: {theme}
        </button>
        <button type="button" class="quiet" onClick={onReset}>
          Reset
        </button>
      </nav>
    </header>
  );
}

import { useEffect, useState } from "preact/hooks";

const shownMs = 1500;

/** A button that copies. It says so in its own place, so that nothing moves. */
export function Copy({ text, what }: { readonly text: string; readonly what: string }) {
  const [state, setState] = useState<"ready" | "copied" | "failed">("ready");
  useEffect(() => {
    if (state === "ready") return;
    const timer = setTimeout(() => setState("ready"), shownMs);
    return () => clearTimeout(timer);
  }, [state]);
  const copy = () =>
    copyText(text).then(
      () => setState("copied"),
      () => setState("failed"),
    );
  const label = { ready: `Copy ${what}`, copied: "Copied", failed: "Cannot copy: select it instead" }[state];
  return (
    <button type="button" class={`copy copy-${state}`} aria-label={label} title={label} onClick={copy}>
      <svg viewBox="0 0 16 16" aria-hidden="true">
        {state === "copied" ? (
          <path d="M2.5 8.5l3.5 4 7.5-9" />
        ) : (
          <path d="M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3" />
        )}
      </svg>
    </button>
  );
}

/** The clipboard is only there on a secure origin, and a console may be behind plain HTTP inside of a network. */
async function copyText(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  if (!isCopied) throw new Error("The browser did not copy.");
}

/** A name that people look up elsewhere: all of it can be selected, and copied at once. */
export function Name({
  text,
  what,
  href,
}: {
  readonly text: string;
  readonly what: string;
  readonly href?: string;
}) {
  return (
    <span class="name">
      {href === undefined ? (
        <code title={text}>{text}</code>
      ) : (
        <a href={href} title={text}>
          <code>{text}</code>
        </a>
      )}
      <Copy text={text} what={what} />
    </span>
  );
}

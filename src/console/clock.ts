import { useEffect, useState } from "preact/hooks";

/**
 * All times are the store's. The browser's clock may be wrong by hours, so what the store said last is carried on by a
 * clock that nobody can set.
 */
let said = Date.now();
let saidAt = performance.now();

export function clockSaid(now: number): void {
  said = now;
  saidAt = performance.now();
}

export function storeNow(): number {
  return said + (performance.now() - saidAt);
}

const listeners = new Set<() => void>();

// One timer for all times on the page; each is drawn again only if its text changes.
setInterval(() => {
  if (document.hidden) return;
  for (const listener of listeners) listener();
}, 1000);

/** What `text` makes of the store's time, again every second. */
export function useStoreTime(text: (now: number) => string): string {
  const [shown, setShown] = useState(() => text(storeNow()));
  useEffect(() => {
    const update = () => setShown(text(storeNow()));
    update();
    listeners.add(update);
    return () => {
      listeners.delete(update);
    };
  }, [text]);
  return shown;
}

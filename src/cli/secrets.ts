/** Texts that must not be shown, wherever they turn up: drivers put what they were given into their errors. */
export class Secrets {
  readonly #texts = new Set<string>();

  add(secret: string | undefined): void {
    // A shorter one would hide half of every sentence, and is no secret.
    if (secret !== undefined && secret.length >= lengthMin) this.#texts.add(secret);
  }

  /** The password of a URL, however it is written. */
  addUrl(url: string): void {
    const [, written] = /^[a-z][a-z0-9+-]*:\/\/[^/?#]*?:([^/?#]*)@/i.exec(url) ?? [];
    this.add(written);
    if (written === undefined) return;
    try {
      this.add(decodeURIComponent(written));
    } catch {
      // Not percent-encoded, though it looks like it: then it is only what it is.
    }
  }

  hidden(text: string): string {
    // The longest first: one may be a part of another.
    const longestFirst = [...this.#texts].sort((a, b) => b.length - a.length);
    return longestFirst.reduce((shown, secret) => shown.replaceAll(secret, "***"), text);
  }
}

const lengthMin = 3;

/** Where a store is, without the user and what follows the name of the database: enough to recognise it. */
export function shownUrl(url: string): string {
  return url.replace(/^([a-z][a-z0-9+-]*:\/\/)[^/?#]*@/i, "$1").replace(/[?#].*$/s, "");
}

/** Texts that must not be shown, wherever they turn up: drivers put what they were given into their errors. */
export class Secrets {
  readonly #texts = new Set<string>();

  add(secret: string | undefined): void {
    // A shorter one would hide half of every sentence, and is no secret.
    if (secret !== undefined && secret.length >= lengthMin) this.#texts.add(secret);
  }

  /** The password of a URL, however it is written, and also where it was not: half of one is a secret, too. */
  addUrl(url: string): void {
    const [, strict] = /^[a-z][a-z0-9+-]*:\/\/[^/?#]*?:([^/?#]*)@/i.exec(url) ?? [];
    const [, upToTheLast] = /^[a-z][a-z0-9+-]*:\/*[^:]*:(.*)@/is.exec(url) ?? [];
    const parameters = [...url.matchAll(/[?&][^=&#]*(?:pass|pwd|secret|token)[^=&#]*=([^&#]*)/gi)];
    for (const written of [strict, upToTheLast, ...parameters.map(([, value]) => value)]) {
      this.add(written);
      try {
        this.add(written && decodeURIComponent(written));
      } catch {
        // Not percent-encoded, though it looks like it: then it is only what it is.
      }
    }
  }

  hidden(text: string): string {
    // The longest first: one may be a part of another.
    const longestFirst = [...this.#texts].sort((a, b) => b.length - a.length);
    return longestFirst.reduce((shown, secret) => shown.replaceAll(secret, "***"), text);
  }
}

const lengthMin = 3;

/**
 * Where a store is, without the user and what follows the name of the database: enough to recognise it. Of a URL in which
 * a password is not written as it has to be, nobody can tell where that ends, so nothing but its kind is shown.
 */
export function shownUrl(url: string): string {
  const [, scheme = "", rest = ""] = /^([a-z][a-z0-9+-]*:)(.*)$/is.exec(url) ?? [];
  if (scheme.toLowerCase() === "sqlite:") return url.replace(/[?#].*$/s, "");
  const [, place] = wellFormed.exec(rest) ?? [];
  return `${scheme}//${place ?? "…"}`;
}

const host = String.raw`(?:[\w.%-]*|\[[\da-f:.]+\])(?::\d+)?`;

/** `//user:password@host:1,host:2/database?options`, of which the hosts and the database may be shown. */
const wellFormed = new RegExp(`^//(?:[^/?#]*@)?(${host}(?:,${host})*(?:/[^?#@]*)?)(?:[?#][^@]*)?$`, "is");

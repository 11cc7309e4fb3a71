import type { Exchange } from "./report/report.ts";
import type { Answer, Fields } from "./wire.ts";

const bodyCharactersMax = 2000; // Enough to recognise an answer; a report is read by people.
const secretLengthMin = 4; // A shorter one would hide half of every text, and is no secret.

/** Makes exchanges fit to be shown: what authenticates the caller is in no report. */
export class Evidence {
  readonly #keyHeader: string;
  readonly #secrets: readonly string[];

  /** Every header that will be sent with every request, by which secrets are found again where they are echoed. */
  constructor(keyHeader: string, ...headers: readonly Readonly<Record<string, string>>[]) {
    this.#keyHeader = keyHeader.toLowerCase();
    this.#secrets = headers
      .flatMap((one) => Object.entries(one))
      .filter(([name]) => this.#isSecret(name))
      .flatMap(([, value]) => [value, ...value.split(/[\s;,]+/)])
      .filter((value) => value.length >= secretLengthMin && !/^(basic|bearer|digest)$/i.test(value))
      .sort((a, b) => b.length - a.length);
  }

  exchange(
    request: {
      readonly method: string;
      readonly url: URL;
      readonly fields: Fields;
      readonly body: string | undefined;
    },
    tookMs: number,
    answer: Answer | { readonly reason: string },
  ): Exchange {
    return {
      method: request.method,
      url: this.url(request.url),
      requestFields: this.#fields(request.fields),
      requestBody: this.text(request.body ?? ""),
      tookMs: Math.round(tookMs),
      answer:
        "reason" in answer
          ? { kind: "none", reason: this.text(answer.reason) }
          : {
              kind: "answered",
              status: answer.status,
              fields: this.#fields(answer.fields),
              body: this.text(answer.body.toString("utf8")),
            },
    };
  }

  text(text: string): string {
    const hidden = this.#hidden(text);
    if (hidden.length <= bodyCharactersMax) return hidden;
    return `${hidden.slice(0, bodyCharactersMax)}… (cut; ${hidden.length} characters in all)`;
  }

  url(url: URL): string {
    const shown = new URL(url);
    for (const name of shown.searchParams.keys())
      if (this.#isSecret(name)) shown.searchParams.set(name, "***");
    return this.#hidden(shown.href);
  }

  #hidden(text: string): string {
    return this.#secrets.reduce((shown, secret) => shown.replaceAll(secret, "***"), text);
  }

  #fields(fields: Fields): Fields {
    return fields.map(([name, value]) => [name, this.#isSecret(name) ? masked(value) : this.text(value)]);
  }

  #isSecret(name: string): boolean {
    return name.toLowerCase() !== this.#keyHeader && secretName.test(name);
  }
}

// Generous: a header that is hidden for nothing costs less than one that is shown.
const secretName =
  /auth|token|secret|cookie|api-?_?key|apikey|password|session|signature|credential|access-?_?key/i;

/** The scheme of an `Authorization` stays, because it helps and tells nothing. */
function masked(value: string): string {
  const [, scheme] = /^([A-Za-z]+) +\S/.exec(value) ?? [];
  return scheme === undefined ? "***" : `${scheme} ***`;
}

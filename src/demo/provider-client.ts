import type { Charge } from "./provider.ts";

/** The provider has refused, and says that it has charged nothing. */
export class ProviderDownError extends Error {}

export interface Findings {
  readonly found: "charged" | "processing" | "nothing";
  readonly charge: Charge | null;
}

/** How the payments API speaks with its provider. */
export class ProviderClient {
  readonly #url: string;

  constructor(url: string) {
    this.#url = url;
  }

  async charge(order: {
    readonly order: string;
    readonly amount: number;
    readonly reference: string;
  }): Promise<Charge> {
    const response = await fetch(`${this.#url}/charges`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(order),
    });
    if (response.status === 503) throw new ProviderDownError("the provider is down, and has charged nothing");
    if (!response.ok) throw new Error(`the provider answered ${response.status}`);
    return (await response.json()) as Charge;
  }

  async find(reference: string, signal: AbortSignal): Promise<Findings> {
    const response = await fetch(`${this.#url}/charges?reference=${encodeURIComponent(reference)}`, {
      signal,
    });
    if (!response.ok) throw new Error(`the provider answered ${response.status}`);
    return (await response.json()) as Findings;
  }
}

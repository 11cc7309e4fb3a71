const storageName = "latchkey-token";

/** Kept for this tab only, and gone with it. Never in an address, where histories and logs would keep it. */
export function keptToken(): string | undefined {
  return sessionStorage.getItem(storageName) ?? undefined;
}

export function keepToken(token: string): void {
  sessionStorage.setItem(storageName, token);
}

export function forgetToken(): void {
  sessionStorage.removeItem(storageName);
}

export interface Deferred extends Promise<void> {
  resolve(): void;
}

/** A promise that a test resolves when it wants to. */
export function deferred(): Deferred {
  let resolve = () => {};
  const promise = new Promise<void>((yes) => {
    resolve = yes;
  });
  return Object.assign(promise, { resolve: () => resolve() });
}

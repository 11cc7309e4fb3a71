import { type AskOptions, ask, type Enforcement } from "./asking.ts";
import { readOpenApi } from "./document.ts";
import { type Operation, operationsIn } from "./operations.ts";

export interface AuditedOperation extends Omit<Operation, "body"> {
  /** What became of a request without a key; null if nothing was asked. */
  readonly asked: Enforcement | null;
  /** False if it accepts a request without a key or, where that could not be found out, does not declare it required. */
  readonly isEnforced: boolean;
}

/** The operations of a document that change something. */
export function readOperations(
  text: string,
  { keyHeader }: { readonly keyHeader: string },
): readonly Operation[] {
  return operationsIn(readOpenApi(text), keyHeader);
}

/** Asks each of them that needs a key, one after the other; or none, if there is nobody to ask. */
export async function audit(
  operations: readonly Operation[],
  options: AskOptions | undefined,
  onAsked: (done: number) => void = () => {},
): Promise<readonly AuditedOperation[]> {
  const audited: AuditedOperation[] = [];
  for (const operation of operations) {
    const { body: _, ...shown } = operation;
    const asked = options !== undefined && operation.needsKey ? await ask(operation, options) : null;
    if (asked !== null) onAsked(audited.length + 1);
    audited.push({ ...shown, asked, isEnforced: isEnforced(operation, asked) });
  }
  return audited;
}

function isEnforced({ needsKey, key }: Operation, asked: Enforcement | null): boolean {
  switch (asked?.kind) {
    case "accepted":
      return false;
    case "enforced":
      return true;
    case "cannot-tell":
    case "not-asked":
    case undefined:
      return !needsKey || key === "required";
    default:
      return asked satisfies never;
  }
}

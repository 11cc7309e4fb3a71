import { Administration } from "../admin/administration.ts";
import type { RecordDetailView } from "../admin/views.ts";
import { StoreRefusedError, UnreadableError } from "../core/errors.ts";
import type { PolicyInput } from "../core/policy.ts";
import { createLatchkey, type Latchkey } from "../latchkey.ts";
import type { RequestName } from "../operation/request-name.ts";
import type { Context } from "./context.ts";
import { exitCodes, Failure, failed, failureOf, notFound, usage } from "./failure.ts";
import { flag, text, type ValuesOf } from "./option.ts";
import { visible } from "./screen.ts";
import { shownUrl } from "./secrets.ts";
import { openSharedStore, privacyOf, type StoreChoice, storeUrl } from "./store-options.ts";

/** On commands that look at one record. */
export const recordOptions = {
  tenant: text({ placeholder: "TENANT", description: "Whose key it is, as the service names its callers." }),
  scope: text({
    placeholder: "SCOPE",
    description: "What the key is unique within, as list shows it, where keys belong to endpoints.",
  }),
};

/** On commands that change something. */
export const changeOptions = {
  by: text({
    placeholder: "NAME",
    description: "Who says so, for the audit trail.",
    byDefault: "the name of the user",
  }),
  yes: flag("Does not ask; needed where there is no terminal.", "y"),
};

/** What an operator can do on a store, for as long as a command runs. */
export interface Operations {
  readonly latchkey: Latchkey;
  readonly administration: Administration;
  /** The same without the keys of the environment, for what they do not open. */
  unopened(): Administration;
}

/** Opens the store for `work`, and closes it whatever comes of it. `policy` is that of what is settled here. */
export async function withOperations(
  context: Context,
  choice: StoreChoice,
  work: (operations: Operations) => Promise<void>,
  policy: PolicyInput = {},
): Promise<void> {
  let latchkey: Latchkey | undefined;
  try {
    const { store } = await openSharedStore(context, choice);
    const { encryption, ...hashing } = privacyOf(context, store);
    const options = { ...policy, ...hashing, store, tenant: "single" } as const;
    latchkey = createLatchkey({ ...options, ...(encryption && { encryption }) });
    const unopened = () => new Administration(createLatchkey(options));
    await work({ latchkey, administration: new Administration(latchkey), unopened });
  } catch (error) {
    throw explained(error, () => shownUrl(storeUrl(context, choice)));
  } finally {
    // Not waited for: a store that does not answer would not say goodbye either, and the process ends with the command.
    void latchkey?.close({ drainMs: 0 }).catch(() => {});
  }
}

/** The store as people know it, and what to do about what is common. */
export function explained(error: unknown, shown: () => string): Failure {
  const failure = failureOf(error);
  if (error instanceof UnreadableError) return failed(failure.message, "unreadable");
  if (failure.code !== "store-unavailable") return failure;
  if (error instanceof StoreRefusedError)
    return new Failure(exitCodes.badUsage, "refused-by-store", failure.message);
  const hint = lacksTables(error)
    ? " (its tables are not there, or not those of this version: run latchkey migrate)"
    : "";
  return failed(`the store ${shown()} cannot be used: ${failure.message}${hint}`, failure.code);
}

/** An undefined table, function or column, in the words of each server. */
const missingCodes: ReadonlySet<unknown> = new Set([
  "42P01",
  "42883",
  "42703",
  "ER_NO_SUCH_TABLE",
  "ER_SP_DOES_NOT_EXIST",
  "ER_BAD_FIELD_ERROR",
]);

function lacksTables(error: unknown): boolean {
  for (let cause = error; cause instanceof Error; cause = cause.cause) {
    if (missingCodes.has((cause as { code?: unknown }).code)) return true;
  }
  return false;
}

/** The one record that is meant by a key, and by a tenant or a scope where the key alone does not say it. */
export async function recordNamed(
  { env }: Context,
  { administration, unopened }: Operations,
  key: string,
  { tenant, scope }: ValuesOf<typeof recordOptions>,
): Promise<RecordDetailView> {
  if (tenant !== undefined && scope !== undefined) throw usage("pass --tenant or --scope, not both");
  if (tenant === undefined && scope === undefined && env.LATCHKEY_HASH_KEYS && !key.startsWith("h1_")) {
    throw usage(
      "keys are hashed together with their scope, so that a key alone finds nothing: add --tenant or --scope",
    );
  }
  const record = await found(administration, key, { tenant, scope }).catch((error) => {
    if (!(error instanceof UnreadableError)) throw error;
    // All but what is sealed can still be shown.
    return found(unopened(), key, { tenant, scope });
  });
  if (record !== undefined) return record;
  const where =
    scope === undefined ? (tenant === undefined ? "" : ` of tenant ${tenant}`) : ` in scope ${scope}`;
  throw notFound(`there is no record for the key ${visible(key)}${visible(where)}`);
}

async function found(
  administration: Administration,
  key: string,
  { tenant, scope }: ValuesOf<typeof recordOptions>,
): Promise<RecordDetailView | undefined> {
  if (scope !== undefined) return administration.record({ scope, key });
  // Most keys belong to the tenant itself, and are found without looking through anything.
  const own = tenant === undefined ? undefined : await administration.record({ tenant, key });
  if (own !== undefined) return own;
  const of = await inOneScope(administration, key, tenant);
  return of === undefined ? undefined : administration.record(of);
}

/** A key may have been used by several tenants, and on several endpoints of one. */
async function inOneScope(
  administration: Administration,
  key: string,
  tenant: string | undefined,
): Promise<RequestName | undefined> {
  const scopes = new Set<string>();
  let cursor: string | undefined;
  do {
    const page = await administration.records({ key, tenant, cursor, limit: scopesShown });
    for (const { scope } of page.records) scopes.add(scope);
    cursor = page.next ?? undefined;
  } while (cursor !== undefined && scopes.size <= scopesShown);
  const [scope, another] = scopes;
  if (another === undefined) return scope === undefined ? undefined : { scope, key };
  const shown = [...scopes].slice(0, scopesShown).map((one) => `"${visible(one)}"`);
  throw usage(`the key was used in more than one scope, say which with --scope: ${shown.join(", ")}`);
}

const scopesShown = 10;

/** Who is in the audit trail. */
export function speakerOf(context: Context, { by }: { readonly by: string | undefined }): string {
  return by ?? context.user;
}

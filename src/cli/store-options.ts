import { existsSync } from "node:fs";
import type { Store } from "../core/store.ts";
import type { LatchkeyOptions } from "../latchkey-options.ts";
import { type KeyRing, keyRing, type RingKey } from "../privacy/key-ring.ts";
import { NoteSecrets } from "../privacy/note-secrets.ts";
import { kindOfUrl, openStore, sqlitePath } from "../stores/open-store.ts";
import type { Context } from "./context.ts";
import { failed, usage } from "./failure.ts";
import { flag, text, type ValuesOf } from "./option.ts";

/** On every command that works on a store. */
export const storeOptions = {
  store: text({
    placeholder: "URL",
    description: "The store, such as sqlite:./latchkey.db or postgres://user@host/database.",
    byDefault: "$LATCHKEY_STORE",
  }),
  distributed: flag(
    "The store is CockroachDB, YugabyteDB, Aurora DSQL or Citus, with tables made by migrate --distributed.",
  ),
};

export type StoreChoice = ValuesOf<typeof storeOptions>;

/** Which store is meant. Its password is not shown from here on, whatever a driver makes of it. */
export function storeUrl({ env, secrets }: Context, { store }: Pick<StoreChoice, "store">): string {
  const url = store ?? env.LATCHKEY_STORE;
  if (!url) throw usage("which store? Pass --store URL, or set LATCHKEY_STORE");
  secrets.addUrl(url);
  return url;
}

/** Opens a store that others work on: what is not there is not made. */
export async function openSharedStore(
  context: Context,
  choice: StoreChoice & { readonly partitioned?: boolean },
): Promise<{ readonly store: Store; readonly url: string }> {
  const url = storeUrl(context, choice);
  const kind = kindOfUrl(url);
  if (kind === "memory") {
    throw usage(
      "a store in memory lives within one process, and this is another: use the URL of a shared store",
    );
  }
  if (kind === "sqlite") await refuseUnmigrated(sqlitePath(url));
  const { distributed, partitioned = false } = choice;
  if (kind !== "postgres" && (distributed || partitioned)) {
    throw usage("--distributed and --partitioned are for stores with a postgres:// URL");
  }
  const store = await openStore(url, {
    postgres: { ...(distributed ? { engine: "distributed" } : {}), ...(partitioned ? { partitioned } : {}) },
  });
  return { store, url };
}

/** Opening a file makes it and migrates it, and the service that it belongs to may not know what it was migrated to. */
async function refuseUnmigrated(path: string): Promise<void> {
  if (!existsSync(path)) {
    throw failed(
      `there is no file ${path}: check the URL, or make it with latchkey migrate`,
      "store-missing",
    );
  }
  const { pendingMigrations } = await import("../stores/sqlite/store.ts");
  const { pending } = pendingMigrations(path);
  if (pending.length === 0) return;
  throw failed(
    `${path} lacks ${pending.length} migrations of this version (${pending.map(({ name }) => name).join(", ")}): ` +
      "run latchkey migrate, or the version of latchkey that the service runs",
    "not-migrated",
  );
}

/** What is needed to read what the service has sealed, and to find what it has hashed. */
export function privacyOf(
  { env, secrets }: Context,
  store: Store,
): Pick<LatchkeyOptions, "hashKeys" | "encryption"> {
  const { LATCHKEY_HASH_KEYS: hashKeys, LATCHKEY_ENCRYPTION_KEYS: encryptionKeys } = env;
  secrets.add(hashKeys);
  return {
    ...(hashKeys ? { hashKeys } : {}),
    ...(encryptionKeys ? { encryption: ringOf(encryptionKeys, secrets, store) } : {}),
  };
}

/** `[{"id":"…","secret":"…"}]`, or `id:secret` separated by commas; the first one seals, all of them open. */
function ringOf(given: string, secrets: Context["secrets"], { notes }: Store): KeyRing {
  const keys = given.trimStart().startsWith("[") ? fromJson(given) : fromList(given);
  for (const { secret } of keys) if (typeof secret === "string") secrets.add(secret);
  // Looking at something must not seal a tenant's secret with a key that the service may not have.
  return keyRing(keys, { tenantSecrets: new NoteSecrets(notes, keyRing(keys), { reseals: false }) });
}

function fromJson(given: string): readonly RingKey[] {
  try {
    return JSON.parse(given);
  } catch {
    throw usage("LATCHKEY_ENCRYPTION_KEYS begins with [ and is no JSON");
  }
}

function fromList(given: string): readonly RingKey[] {
  return given.split(",").map((entry) => {
    const [, id, secret] = /^\s*([^:]+):(.+?)\s*$/.exec(entry) ?? [];
    if (id === undefined || secret === undefined) {
      throw usage('LATCHKEY_ENCRYPTION_KEYS must be id:secret,id:secret or [{"id":"…","secret":"…"}]');
    }
    return { id, secret };
  });
}

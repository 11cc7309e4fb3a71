import { migrateStore, type StoreMigration } from "../../stores/migrate-store.ts";
import { kindOfUrl } from "../../stores/open-store.ts";
import { command, jsonOption, noArguments } from "../command.ts";
import type { Context } from "../context.ts";
import { usage } from "../failure.ts";
import { choice, flag } from "../option.ts";
import { Progress } from "../progress.ts";
import { shownUrl } from "../secrets.ts";
import { storeOptions, storeUrl } from "../store-options.ts";

export const migrate = command({
  name: "migrate",
  summary: "makes the tables of a store, or brings them to this version",
  description:
    "Applies the migrations that the store lacks. Processes that do so at once wait for each other, and doing it again changes " +
    "nothing. With --dry-run nothing is changed: stdout is the SQL of exactly what would be applied, as psql, mysql or sqlite3 take it.",
  arguments: noArguments,
  options: {
    ...storeOptions,
    "dry-run": flag("Prints the SQL and changes nothing."),
    partitioned: choice(["day", "hour"], {
      placeholder: "WIDTH",
      description:
        "Makes the records of an empty Postgres database partitioned, so that expired ones are dropped together. The service has to be told.",
    }),
    ...jsonOption,
  },
  examples: [
    { command: "latchkey migrate --store postgres://app@db/payments", does: "makes or updates the tables" },
    {
      command: "latchkey migrate --dry-run --store postgres://app@db/payments > change.sql",
      does: "for whoever has to look at it first",
    },
  ],
  async run(context, { options }) {
    const url = storeUrl(context, options);
    const { partitioned, distributed, "dry-run": dryRun } = options;
    if (kindOfUrl(url) !== "postgres" && (distributed || partitioned !== undefined)) {
      throw usage("--distributed and --partitioned are for stores with a postgres:// URL");
    }
    const progress = new Progress(context.stderr, "migrations");
    const migration = await migrateStore(url, {
      dryRun,
      engine: distributed ? "distributed" : "postgres",
      ...(partitioned === undefined ? {} : { partitioned }),
      onApplied: (_, { done, total }) => progress.show(done, total),
    }).finally(() => progress.end());
    await tell(context, migration, url);
  },
});

async function tell(context: Context, migration: StoreMigration, url: string): Promise<void> {
  switch (migration.kind) {
    case "migrated": {
      const { applied } = migration;
      const text =
        applied.length === 0 ? "nothing to apply: the store is ready" : `applied ${applied.join(", ")}`;
      return context.answer({ store: shownUrl(url), applied, pending: [] }, () => text);
    }
    case "pending": {
      const { pending, script } = migration;
      await context.answer({ store: shownUrl(url), applied: [], pending }, () =>
        pending.length === 0 ? "-- nothing to apply: the store is ready" : script,
      );
      return;
    }
    case "nothing":
      return context.answer(
        { store: shownUrl(url), applied: [], pending: [], because: migration.because },
        () => `-- nothing to migrate: ${migration.because}`,
      );
    default:
      return migration satisfies never;
  }
}

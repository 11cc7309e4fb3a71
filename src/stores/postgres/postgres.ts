import type { Database, Parameter, Query, Row } from "./database.ts";

/** The part of `sql` from the package `postgres` that the store needs. */
export interface PostgresSql extends PostgresUnsafe {
  begin(work: (sql: PostgresUnsafe) => Promise<unknown>): Promise<unknown>;
  listen(
    channel: string,
    heard: (payload: string) => void,
    listening?: () => void,
  ): Promise<{ unlisten(): Promise<void> }>;
}

interface PostgresUnsafe {
  unsafe(text: string, parameters?: Parameter[]): PromiseLike<readonly object[]>;
}

export function isPostgresSql(client: unknown): client is PostgresSql {
  if (typeof client !== "function") return false;
  const { unsafe, begin, listen } = client as Partial<PostgresSql>;
  return [unsafe, begin, listen].every((method) => typeof method === "function");
}

export function postgresDatabase(sql: PostgresSql): Database {
  return {
    query: queryOf(sql),
    transaction: <T>(work: (query: Query) => Promise<T>) =>
      sql.begin((transaction) => work(queryOf(transaction))) as Promise<T>,
    push: {
      kind: "listener",
      async listen(channel, hooks) {
        const { unlisten } = await sql.listen(channel, hooks.heard, hooks.listening);
        return { stop: unlisten };
      },
    },
  };
}

/** `unsafe` means that the text is sent as it is. It makes no named statement, unlike the tagged form. */
function queryOf(sql: PostgresUnsafe): Query {
  return async <R extends Row>(text: string, parameters: readonly Parameter[] = []) =>
    (await sql.unsafe(text, [...parameters])) as unknown as readonly R[];
}

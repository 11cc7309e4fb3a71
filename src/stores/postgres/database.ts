import { ConfigError } from "../../core/errors.ts";
import type { BatchFunction, BatchParameter } from "./arrays.ts";
import { isPgPool, type PgPool, pgDatabase } from "./pg.ts";
import { isPostgresSql, type PostgresSql, postgresDatabase } from "./postgres.ts";

/** What the store needs of a database, whichever driver the user has. */
export interface Database<Tx = unknown> {
  readonly query: Query;
  /** For statements whose plan can be kept, which some drivers may name: see `NamedStatements`. */
  readonly call: Query;
  /** Whether the server plans what `call` sends once for each connection, and not whenever it is sent. */
  keepsPlans(): boolean;
  readonly batch: Batch;
  /**
   * Runs `work` in one transaction on one connection, and hands it the driver's own client for that transaction.
   * Rejects with what `work` threw only after it was rolled back.
   */
  transaction<T>(work: (query: Query, tx: Tx) => Promise<T>, options?: TransactionOptions): Promise<T>;
  /** Called after a server has refused to write: connections that lead there are to be closed. */
  leaveReadOnly(): void;
  readonly push: PushSource;
}

export interface TransactionOptions {
  /** Sent with the BEGIN. */
  readonly beginWith?: string;
  /** Whether a statement of `work` may take as long as it likes, as a change of tables does. */
  readonly isLong?: boolean;
}

/** Postgres itself, or an engine of many machines that speaks its protocol and lacks some of what it has. */
export type Engine = "postgres" | "distributed";

/** Sends one statement. */
export type Query = <R extends Row = Row>(
  text: string,
  parameters?: readonly Parameter[],
) => Promise<readonly R[]>;

/** Calls a function of the database with arrays, in the form in which this driver does that at the least cost. */
export type Batch = <R extends Row = Row>(
  called: BatchFunction,
  parameters: readonly BatchParameter[],
) => Promise<readonly R[]>;

/** Only what every driver sends and reads alike. */
export type Parameter = string | number | boolean | Uint8Array | null;
export type Row = Readonly<Record<string, Parameter>>;

/** How notifications are heard: on a connection of our own, or through the driver's own listener. */
export type PushSource =
  | {
      readonly kind: "connection";
      connect(): Promise<Connection>;
      /** How many connections the pool has, if it says so. */
      readonly connectionsMax: number | undefined;
    }
  | { readonly kind: "listener"; listen: Listen };

/** A connection that is ours until it ends. */
export interface Connection {
  readonly query: Query;
  /** Called with each notification's payload. */
  onNotification(heard: (payload: string) => void): void;
  /** Called once, when the connection is gone, whoever ended it. */
  onEnd(ended: (cause: Error) => void): void;
  /** Ends the connection, which never goes back to the pool: it may hold locks and listen. */
  destroy(): void;
}

/** Listens for as long as it is not stopped, over any number of connections. */
export type Listen = (channel: string, hooks: ListenHooks) => Promise<{ stop(): Promise<void> }>;

export interface ListenHooks {
  heard(payload: string): void;
  /** Called when listening begins, and when it begins again. */
  listening(): void;
}

/** The user's own client: a `Pool` of `pg`, or the `sql` of `postgres`. */
export type PostgresClient = PgPool | PostgresSql;

/**
 * What business writes go through in an atomic phase: the client of a `pg` pool, or the `sql` of a transaction of
 * `postgres`, of the user's own type. Both packages have a second way to call it, and what is inferred from a type with
 * two ways has to name both, or the last.
 */
export type TransactionOf<Client> = Client extends {
  connect: { (): Promise<infer Tx>; (callback: (...answer: never[]) => void): void };
}
  ? unknown extends Tx
    ? Client extends { connect(): Promise<infer Only> }
      ? Only
      : unknown
    : Tx
  : Client extends { begin(options: string, work: (sql: infer Tx) => unknown): unknown }
    ? Tx
    : Client extends { begin(work: (sql: infer Tx) => Promise<unknown>): unknown }
      ? Tx
      : unknown;

export function databaseOf<Client extends PostgresClient>(
  client: Client,
  engine: Engine = "postgres",
): Database<TransactionOf<Client>> {
  const database = driverOf(client, engine) as Database<TransactionOf<Client>>;
  // What other engines do when they only read is not known, nor whether they know the setting.
  return engine === "postgres" ? database : { ...database, leaveReadOnly: () => {} };
}

function driverOf(client: PostgresClient, engine: Engine): Database {
  if (isPgPool(client)) return pgDatabase(client) as Database;
  if (isPostgresSql(client)) return postgresDatabase(client, engine) as Database;
  throw new ConfigError(
    "the Postgres store needs your database client: a Pool of the package pg (not a single Client), or what " +
      "postgres() of the package postgres returns",
  );
}

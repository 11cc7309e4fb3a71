import type { AuditEntry, AuditQuery } from "../../core/audit.ts";
import type { IdempotencyRecord, InProgressRecord, RecordId } from "../../core/record.ts";
import type { Lease } from "../../core/store.ts";
import { decodeRequest, encodeRequest, type StoredRequest } from "../../core/stored-request.ts";
import type { Entry, Moved } from "../moves.ts";
import { moment, type RowExtras, recordOf, rowOf, wholeMs } from "../record-row.ts";
import { AuditTrail } from "./audit.ts";
import type { Completion } from "./bunches.ts";
import type { SqliteDatabase } from "./driver.ts";
import { prepareStatements, type Statements } from "./statements.ts";
import { planAnew } from "./tiny-tables.ts";

/** The records of one connection. Whoever writes is in a transaction. */
export class Records {
  readonly statements: Statements;
  readonly #audit: AuditTrail;
  readonly #database: SqliteDatabase;

  constructor(database: SqliteDatabase) {
    this.#database = database;
    this.statements = prepareStatements(database);
    this.#audit = new AuditTrail(database);
  }

  /** One statement for many took long. Somebody may have run ANALYZE, after which SQLite plans all of them anew. */
  tookLong(): void {
    planAnew(this.#database);
  }

  get({ scope, key }: RecordId): Entry | undefined {
    const row = this.statements.readRecord.get(scope, key);
    if (row === undefined) return undefined;
    return {
      record: recordOf({ scope, key }, row),
      lastOwner: row.owner as string | null,
      requestHead: row.request_head as string | null,
    };
  }

  /** The entry that this lease is about, whatever has become of its execution. */
  getOf(lease: Lease): Entry | undefined {
    const entry = this.get(lease);
    return entry?.record.fence === lease.fence && entry.lastOwner === lease.owner ? entry : undefined;
  }

  /** Writes down a new request that keeps nothing for a worker, in this row; undefined if there is a record with its key. */
  insert(record: InProgressRecord): number | undefined {
    const { scope, key, fingerprint, fence, onCrash, createdAt, expiresAt, owner, leaseUntil } = record;
    const parameters = [
      scope,
      key,
      fingerprint,
      fence,
      onCrash,
      moment(createdAt),
      moment(expiresAt),
      owner,
      moment(leaseUntil),
      record.route ?? null,
      wholeMs(record.reconcileAfterMs),
    ];
    const { changes, lastRowid } = this.statements.insertReservation.runWith(parameters);
    return changes === 1 ? lastRowid : undefined;
  }

  put(record: IdempotencyRecord, extras: RowExtras): void {
    this.statements.writeRecord.runWith(rowOf(record, extras));
  }

  /** Writes a record with a request of its own, in place of what was kept before. */
  putWithRequest(
    record: IdempotencyRecord,
    {
      lastOwner,
      request,
    }: { readonly lastOwner: string | null; readonly request: StoredRequest | undefined },
  ): void {
    if (request === undefined) {
      this.put(record, { lastOwner, requestHead: null });
      return;
    }
    const { head, body } = encodeRequest(request);
    this.put(record, { lastOwner, requestHead: head });
    this.statements.writeRequestBody.run(record.scope, record.key, body);
  }

  /** Writes what a verb makes of a record, and answers as it does. */
  perform<Answer>(id: RecordId, plan: (entry: Entry | undefined) => Moved<Answer>): Answer {
    const entry = this.get(id);
    const { answer, move } = plan(entry);
    if (move === undefined) return answer;
    const { to, lastOwner, request, audit } = move;
    if (request === undefined) this.put(to, { lastOwner, requestHead: entry?.requestHead ?? null });
    else this.putWithRequest(to, { lastOwner, request: request.kept });
    if (audit !== undefined) this.#audit.write(audit);
    return answer;
  }

  /** Completes what this lease holds; false if it does not hold it, or not any more. */
  complete({ lease, response, completedAt, expiresAt }: Completion): boolean {
    const { scope, key, fence, owner } = lease;
    const { status, head, body } = response;
    const { completeLease, completeLeaseOfKeptRequest } = this.statements;
    const parameters = [status, head, body, completedAt, expiresAt, scope, key, fence, owner];
    return (
      completeLease.runWith(parameters).changes === 1 ||
      completeLeaseOfKeptRequest.runWith(parameters).changes === 1
    );
  }

  requestOf({ record, requestHead }: Entry): StoredRequest | undefined {
    if (requestHead === null) return undefined;
    const body = this.statements.readRequestBody.get(record.scope, record.key)?.body;
    return decodeRequest({ head: requestHead, body: (body as Uint8Array | null) ?? new Uint8Array() });
  }

  writeAudit(entry: Omit<AuditEntry, "id">): void {
    this.#audit.write(entry);
  }

  readAudit(query: AuditQuery): readonly AuditEntry[] {
    return this.#audit.read(query);
  }
}

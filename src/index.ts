export type { AuditEntry, AuditedState, AuditQuery } from "./core/audit.ts";
export {
  ConfigError,
  EffectFailedError,
  ExecutionTimeoutError,
  FlowChangedError,
  LatchkeyError,
  LeaseLostError,
  NoOperationError,
  OperationRefusedError,
  PhaseError,
  type RefusalCode,
  StoreBusyError,
  StoreError,
  StoreRefusedError,
  UnreadableError,
  UnverifiedError,
} from "./core/errors.ts";
export type { KeyFormat } from "./core/key.ts";
export type { Note, NoteAnswer, Notes, NotesReading, NotesWriting, NoteWrite } from "./core/notes.ts";
export type {
  DeadMessage,
  Delivery,
  Message,
  NewMessage,
  Outbox,
  OutboxCounts,
} from "./core/outbox.ts";
export type { Phase, Progress } from "./core/phase.ts";
export type { Policy, PolicyInput, Profile } from "./core/policy.ts";
export type { Problem, ProblemCode, RetryAdvice } from "./core/problem.ts";
export type { IdempotencyRecord, ListedRecord, OnCrash, RecordId, RecordState } from "./core/record.ts";
export type { Redaction } from "./core/redaction.ts";
export type { RequestTime, RequestTimeHeader, SecretsOfTenant } from "./core/request-time.ts";
export { type Secret, signRequestTime } from "./core/request-time-signature.ts";
export type { CapturedResponse, HeaderPair, OmittedBecause, StoredResponse } from "./core/response.ts";
export type { ScopePolicy } from "./core/scope.ts";
export type {
  Advance,
  Bust,
  BustAnswer,
  BustListener,
  BustNames,
  Capabilities,
  ClaimOptions,
  Expiry,
  ForgetCounts,
  ForgetOptions,
  HeartbeatAnswer,
  Lease,
  ListQuery,
  PhaseCommit,
  Reading,
  ReapCounts,
  RecordPage,
  RenewAnswer,
  Replay,
  Reservation,
  ReserveMode,
  ReserveRequest,
  Resolution,
  ResolveAnswer,
  Resumable,
  ResumableClaim,
  SettleAnswer,
  Settlement,
  Store,
  SweepCounts,
  TransactAnswer,
  UnknownCounts,
} from "./core/store.ts";
export type { StoredRequest } from "./core/stored-request.ts";
export type { BreakerOptions } from "./engine/breaker.ts";
export type { EventListener, LatchkeyEvent } from "./engine/events.ts";
export type { LimitsOptions, Rate, TenantLimits } from "./engine/limits/options.ts";
export type { Logger, LogKeys } from "./engine/logging.ts";
export type { ReplayCacheOptions } from "./engine/replay-cache.ts";
export type { Runtime } from "./engine/runtime.ts";
export { asRecorded, type Binding, type BindingOf } from "./http/binding.ts";
export type { RoutePolicy } from "./http/gate.ts";
export type { FingerprintRequest } from "./http/request.ts";
export type { StatusOptions } from "./http/status.ts";
export {
  createLatchkey,
  type Health,
  type Latchkey,
  type ResolveRequest,
} from "./latchkey.ts";
export type { LatchkeyOptions, TenantOf, TenantRequest } from "./latchkey-options.ts";
export type { Busted, BustRequest } from "./operation/busting.ts";
export type { ForgetRequest, Forgotten, TenantRequestBy } from "./operation/forgetting.ts";
export type { Jsonified } from "./operation/json.ts";
export type { ListRequest } from "./operation/looking.ts";
export { currentOperation, type Operation } from "./operation/operation.ts";
export type { OwnResponse } from "./operation/own-response.ts";
export type { EffectContext, EffectOptions, EnqueueOptions } from "./operation/phases.ts";
export type {
  KnownPhase,
  OutcomeVerdict,
  ReconcileHook,
  ReconcileQuestion,
} from "./operation/reconciliation.ts";
export type { RequestName } from "./operation/request-name.ts";
export type { RunRequest } from "./operation/run.ts";
export {
  type KeyRing,
  type KeyRingOptions,
  keyRing,
  type RingKey,
  type TenantSecrets,
} from "./privacy/key-ring.ts";

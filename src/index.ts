export {
  ConfigError,
  ExecutionTimeoutError,
  LatchkeyError,
  LeaseLostError,
  NoOperationError,
  StoreError,
} from "./core/errors.ts";
export type { KeyFormat } from "./core/key.ts";
export type { Policy, PolicyInput, Profile } from "./core/policy.ts";
export type { Problem, ProblemCode, RetryAdvice } from "./core/problem.ts";
export type { IdempotencyRecord, OnCrash, RecordId, RecordState } from "./core/record.ts";
export type { StoredResponse } from "./core/response.ts";
export type { ScopePolicy } from "./core/scope.ts";
export type {
  Capabilities,
  Expiry,
  Lease,
  Reading,
  ReapCounts,
  RenewAnswer,
  Reservation,
  ReserveRequest,
  SettleAnswer,
  Settlement,
  Store,
  SweepCounts,
} from "./core/store.ts";
export type { EventListener, LatchkeyEvent } from "./engine/events.ts";
export type { Runtime } from "./engine/runtime.ts";
export type { RoutePolicy } from "./http/gate.ts";
export type { FingerprintRequest } from "./http/request.ts";
export {
  createLatchkey,
  type Latchkey,
  type LatchkeyOptions,
  type TenantOf,
  type TenantRequest,
} from "./latchkey.ts";
export { currentOperation, type Operation } from "./operation/operation.ts";

/** The yardstick: tells from outside whether an API keeps the contract of idempotency keys. */
export { type BodyValue, type EffectsOf, type VerifyOptions, VerifyOptionsError } from "./options.ts";
export type { ProfileName } from "./profiles.ts";
export { reportHtml } from "./report/html.ts";
export { reportJunit } from "./report/junit.ts";
export {
  type CheckResult,
  type Exchange,
  type Outcome,
  type Progress,
  type Report,
  summaryOf,
} from "./report/report.ts";
export { reportText } from "./report/text.ts";
export { CannotVerifyError, verify } from "./verify.ts";

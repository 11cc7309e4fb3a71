/** What a W3C trace context says in one header: whose trace, which span, and whether it is recorded. */
export interface TraceParent {
  readonly traceId: string;
  readonly spanId: string;
  readonly traceFlags: number;
}

const pattern = /^00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})$/;

/** Undefined for whatever is not one: it came from a client, or from a store that others may write to. */
export function parseTraceparent(text: string | null | undefined): TraceParent | undefined {
  const [, traceId = "", spanId = "", flags = ""] = pattern.exec(text ?? "") ?? [];
  if (/^0*$/.test(traceId) || /^0*$/.test(spanId)) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) };
}

export function traceparentText({ traceId, spanId, traceFlags }: TraceParent): string {
  return `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, "0")}`;
}

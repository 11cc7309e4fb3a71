import { framedDigest } from "./framed.ts";
import type { RecordId } from "./record.ts";

/**
 * The fingerprint of a request that is tied to a session: a text that only the same request from the same session has.
 * Whatever compares fingerprints (stores, caches, joining) thereby compares sessions, and nothing has to be done about
 * it elsewhere.
 */
export function boundFingerprint(fingerprint: string, id: RecordId, session: string): string {
  return fingerprint + separator + bindingMark(id, session);
}

/** Whether whoever has this mark may see a record with this fingerprint: it is tied to the mark, or to nothing. */
export function isOpenTo(fingerprint: string, mark: string | undefined): boolean {
  const at = fingerprint.indexOf(separator);
  return at === -1 || fingerprint.slice(at + 1) === mark;
}

/** The fingerprint under which a record of this very request is kept, whichever session it is tied to. */
export function asRecordedFingerprint(fingerprint: string, recorded: string | undefined): string {
  return recorded?.startsWith(fingerprint + separator) ? recorded : fingerprint;
}

/** Never part of a fingerprint, nor of a digest. */
const separator = ".";

/**
 * What is stored in place of the session. It names none, and the marks of two records of one session have nothing in
 * common: the record's own name is part of it.
 */
export function bindingMark({ scope, key }: RecordId, session: string): string {
  return framedDigest([domain, scope, key, session]);
}

const domain = "latchkey binding 1";

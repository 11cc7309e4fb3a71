import { useEffect } from "preact/hooks";
import type { Notice } from "../context.ts";

const readMs = 10_000; // Time to read a sentence twice. A refusal stays until somebody closes it.

/** What became of the latest change, in words. The region is always there, or screen readers would not notice it. */
export function Notices({
  notice,
  onClose,
}: {
  readonly notice: Notice | undefined;
  readonly onClose: () => void;
}) {
  useEffect(() => {
    if (notice?.kind !== "done") return;
    const timer = setTimeout(onClose, readMs);
    return () => clearTimeout(timer);
  }, [notice, onClose]);
  return (
    <div class="notices" role="status" aria-live="polite">
      {notice !== undefined && (
        <div class={`notice notice-${notice.kind}`}>
          <span>{notice.text}</span>
          <button type="button" class="quiet" aria-label="Close this message" onClick={onClose}>
            ×
          </button>
        </div>
      )}
    </div>
  );
}

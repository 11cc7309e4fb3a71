import type { RecordDetailView, ResolveBody } from "../admin/views.ts";
import { useConsole } from "./context.ts";

/** What every dialog about a verdict is given. */
export interface VerdictProps {
  readonly record: RecordDetailView;
  readonly onClose: () => void;
  readonly onChanged: () => void;
}

/**
 * How a dialog tells a verdict: about the attempt that was looked at, so that whatever became of the record meanwhile is
 * not settled by it. `words` is what is said when it counted.
 */
export function useSettling({ record, onClose, onChanged }: VerdictProps) {
  const { api, say } = useConsole();
  return async (verdict: ResolveBody["verdict"], words: string): Promise<void> => {
    const { scope, key, attempt } = record;
    await api.resolve({ scope, key, attempt, verdict });
    say({ kind: "done", text: words });
    onChanged();
    onClose();
  };
}

import { useCallback, useEffect, useReducer, useRef } from "preact/hooks";
import type { RecordPageView, RecordView } from "../admin/views.ts";
import type { Api } from "./api.ts";
import { sentence } from "./loading.ts";
import type { Query } from "./route.ts";

export const pageRows = 50;
// A store looks at what it can within a moment and may find nothing there; after this many moments a person decides.
const pagesMax = 40;

export interface RecordSearch {
  readonly records: readonly RecordView[];
  readonly order: RecordPageView["order"];
  readonly next: string | null;
  readonly isLooking: boolean;
  /** How many pages of the store were asked for, short and empty ones included. */
  readonly pages: number;
  /** It stopped before it found a whole page, and there is more to look through. */
  readonly hasGivenUp: boolean;
  readonly error: string | undefined;
  readonly stop: () => void;
  readonly goOn: () => void;
  readonly again: () => void;
}

type State = Omit<RecordSearch, "stop" | "goOn" | "again">;
type Change = Partial<State> | ((before: State) => Partial<State>);

const nothing: State = {
  records: [],
  order: "latest-first",
  next: null,
  isLooking: true,
  pages: 0,
  hasGivenUp: false,
  error: undefined,
};

/** Looks for fifty records, however many of the store's pages that takes, and shows what it has found meanwhile. */
export function useRecordSearch(api: Api, question: Query): RecordSearch {
  const [state, change] = useReducer<State, Change>(
    (before, made) => ({ ...before, ...(typeof made === "function" ? made(before) : made) }),
    nothing,
  );
  const looking = useRef<AbortController>(undefined);

  const look = useCallback(
    async (from: State, cursor: string | null | undefined) => {
      looking.current?.abort();
      const ending = new AbortController();
      looking.current = ending;
      let { records, pages } = from;
      let next = cursor;
      change({ ...from, isLooking: true, hasGivenUp: false, error: undefined });
      try {
        for (let turn = 0; turn < pagesMax; turn++) {
          const limit = pageRows - records.length;
          const query = { ...question, limit, cursor: next ?? undefined };
          const page = await api.records(query, ending.signal);
          if (ending.signal.aborted) return;
          records = [...records, ...page.records];
          pages += 1;
          next = page.next;
          const isDone = next === null || records.length >= pageRows;
          change({ records, pages, next, order: page.order, isLooking: !isDone });
          if (isDone) return;
        }
        change({ isLooking: false, hasGivenUp: true });
      } catch (error) {
        if (!ending.signal.aborted) change({ isLooking: false, error: sentence(error) });
      }
    },
    [api, question],
  );

  const again = useCallback(() => {
    const { cursor } = question;
    void look(nothing, cursor === undefined ? undefined : String(cursor));
  }, [look, question]);
  useEffect(() => {
    again();
    return () => looking.current?.abort();
  }, [again]);

  const stop = () => {
    looking.current?.abort();
    change((before) => ({ isLooking: false, hasGivenUp: before.next !== null }));
  };
  const goOn = () => void look(state, state.next);
  return { ...state, stop, goOn, again };
}

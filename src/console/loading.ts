import { useCallback, useEffect, useRef, useState } from "preact/hooks";

export interface Loaded<T> {
  readonly data: T | undefined;
  /** Why the latest attempt failed; `data` is then what was known before. */
  readonly error: string | undefined;
  readonly isLoading: boolean;
  readonly reload: () => void;
}

/**
 * What `load` answers, again whenever it changes and every `everyMs` while somebody looks. What is shown stays until
 * there is something newer, so that nothing jumps.
 */
export function useLoaded<T>(load: (signal: AbortSignal) => Promise<T>, everyMs?: number): Loaded<T> {
  const [state, setState] = useState<Omit<Loaded<T>, "reload">>({
    data: undefined,
    error: undefined,
    isLoading: true,
  });
  const [turn, setTurn] = useState(0);
  const loadedBy = useRef<unknown>(undefined);

  useEffect(() => {
    const ending = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const round = async () => {
      if (document.hidden && everyMs !== undefined && loadedBy.current === load) return again();
      // What another question was answered with says nothing about this one.
      setState(({ data, error }) => {
        const isSame = loadedBy.current === load;
        return { data: isSame ? data : undefined, error: isSame ? error : undefined, isLoading: true };
      });
      try {
        const data = await load(ending.signal);
        if (ending.signal.aborted) return;
        loadedBy.current = load;
        setState({ data, error: undefined, isLoading: false });
      } catch (error) {
        if (ending.signal.aborted) return;
        setState(({ data }) => ({ data, error: sentence(error), isLoading: false }));
      }
      again();
    };
    const again = () => {
      if (everyMs !== undefined && !ending.signal.aborted) timer = setTimeout(() => void round(), everyMs);
    };
    void round();
    return () => {
      ending.abort();
      clearTimeout(timer);
    };
  }, [load, everyMs, turn]);

  const reload = useCallback(() => setTurn((previous) => previous + 1), []);
  return { ...state, reload };
}

export function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

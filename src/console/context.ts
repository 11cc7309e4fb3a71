import { createContext } from "preact";
import { useContext } from "preact/hooks";
import type { SessionView } from "../admin/views.ts";
import type { Api } from "./api.ts";

/** What every page needs: whom to ask, who is asking, and how to say what became of it. */
export interface Console {
  readonly api: Api;
  readonly session: SessionView;
  /** Shown and read out until it is closed, or until somebody has had time to read it. */
  readonly say: (notice: Notice) => void;
}

export interface Notice {
  readonly kind: "done" | "refused";
  readonly text: string;
}

export const ConsoleContext = createContext<Console | undefined>(undefined);

export function useConsole(): Console {
  const found = useContext(ConsoleContext);
  if (found === undefined) throw new Error("This part belongs inside of a signed-in console.");
  return found;
}

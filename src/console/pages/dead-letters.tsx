import { useCallback, useState } from "preact/hooks";
import type { DeadLetterView } from "../../admin/views.ts";
import { useConsole } from "../context.ts";
import { useLoaded } from "../loading.ts";
import { Name } from "../parts/copy.tsx";
import { Pager } from "../parts/pager.tsx";
import { RequeueDialog } from "../parts/requeue-dialog.tsx";
import { Time } from "../parts/time.tsx";
import { Trouble } from "../parts/trouble.tsx";
import { address, type Route } from "../route.ts";
import { counted, pretty } from "../words.ts";

const pageRows = 50;

interface DeadLettersPageProps {
  readonly route: Route;
  readonly onChanged: () => void;
}

/** Messages whose deliveries have all failed, the oldest first. */
export function DeadLettersPage({ route, onChanged }: DeadLettersPageProps) {
  const { api, session } = useConsole();
  const cursor = route.query.get("cursor") ?? undefined;
  const load = useCallback(
    (signal: AbortSignal) => api.deadLetters({ limit: pageRows, cursor }, signal),
    [api, cursor],
  );
  const { data: page, error, isLoading, reload } = useLoaded(load);
  const [chosen, setChosen] = useState<ReadonlySet<string>>(new Set());
  const [asked, setAsked] = useState<readonly DeadLetterView[]>([]);
  const letters = page?.deadLetters ?? [];
  const selected = letters.filter(({ id }) => chosen.has(id));
  const choose = (ids: readonly string[], isChosen: boolean) =>
    setChosen((before) => {
      const after = new Set(before);
      for (const id of ids) isChosen ? after.add(id) : after.delete(id);
      return after;
    });
  const changed = () => {
    setChosen(new Set());
    reload();
    onChanged();
  };
  return (
    <>
      <div class="section-head">
        <h1>Dead letters</h1>
        <span class="muted results" role="status" aria-live="polite">
          {page === undefined ? "Looking…" : `${counted(letters.length, "message")} on this page`}
        </span>
        <button type="button" disabled={isLoading} onClick={reload}>
          Look again
        </button>
        <button
          type="button"
          class="primary"
          disabled={selected.length === 0 || !session.mayChange}
          onClick={() => setAsked(selected)}
        >
          Requeue selected ({selected.length})…
        </button>
      </div>
      <p class="meaning">
        Nobody tries to deliver these any more. Requeued, they get all of their attempts again.
      </p>
      <Trouble error={error} retry={reload} />
      <div class="scroll card">
        <table class="letters" aria-label="Dead letters" aria-busy={isLoading}>
          <thead>
            <tr>
              <th scope="col">
                <input
                  type="checkbox"
                  aria-label="Select all on this page"
                  checked={letters.length > 0 && selected.length === letters.length}
                  disabled={letters.length === 0}
                  onChange={(event) =>
                    choose(
                      letters.map(({ id }) => id),
                      event.currentTarget.checked,
                    )
                  }
                />
              </th>
              <th scope="col">topic</th>
              <th scope="col">message key</th>
              <th scope="col" class="number">
                attempts
              </th>
              <th scope="col">died</th>
              <th scope="col">error and payload</th>
              <th scope="col">
                <span class="unseen">what can be done</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {letters.map((letter) => (
              <Letter
                key={letter.id}
                letter={letter}
                isChosen={chosen.has(letter.id)}
                onChoose={(isChosen) => choose([letter.id], isChosen)}
                onRequeue={() => setAsked([letter])}
              />
            ))}
            {letters.length === 0 && (
              <tr>
                <td colSpan={7} class="empty">
                  {page === undefined ? "Looking…" : "Every message was delivered, or still may be."}
                </td>
              </tr>
            )}
          </tbody>
        </table>
      </div>
      <Pager
        isFirst={cursor === undefined}
        latest={address("dead-letters")}
        older={page?.next == null ? undefined : address("dead-letters", { cursor: page.next })}
        words={{ first: "Oldest", next: "Newer" }}
      />
      {asked.length > 0 && <RequeueDialog letters={asked} onClose={() => setAsked([])} onChanged={changed} />}
    </>
  );
}

interface LetterProps {
  readonly letter: DeadLetterView;
  readonly isChosen: boolean;
  readonly onChoose: (isChosen: boolean) => void;
  readonly onRequeue: () => void;
}

function Letter({ letter, isChosen, onChoose, onRequeue }: LetterProps) {
  const { session } = useConsole();
  const { topic, key, scope, attempts, diedAt, error, payload, correlationId, partition } = letter;
  return (
    <tr>
      <td>
        <input
          type="checkbox"
          aria-label={`Select ${topic} ${key}`}
          checked={isChosen}
          onChange={(event) => onChoose(event.currentTarget.checked)}
        />
      </td>
      <td>{topic}</td>
      <td>
        <Name text={key} what="the message's key" />
        <span class="muted cut" title={`scope ${scope}, correlation ${correlationId}`}>
          {scope}
          {partition === null ? "" : ` · partition ${partition}`}
        </span>
      </td>
      <td class="number">{attempts}</td>
      <td>
        <Time at={diedAt} />
      </td>
      <td class="letter-error">
        <span class="bad-text">{error}</span>
        {payload === null ? (
          <span class="muted">the payload is not shown</span>
        ) : (
          <details>
            <summary>Payload</summary>
            <pre>{pretty(payload)}</pre>
          </details>
        )}
      </td>
      <td>
        <button
          type="button"
          aria-label={`Requeue ${topic} ${key}`}
          disabled={!session.mayChange}
          onClick={onRequeue}
        >
          Requeue…
        </button>
      </td>
    </tr>
  );
}

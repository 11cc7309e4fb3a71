import type { Pending } from "./pending.ts";

/** A verb of a store, such as `reserve`. */
type Verb<Args extends unknown[], Answer> = (...args: Args) => Promise<Answer>;

/**
 * The other forms of verbs. They are known by the verb and not by the store, so that whoever puts another verb in its
 * place, to count or to delay or to fail, is the one who is asked; and not by a property of it, which is copied with it.
 */
const forms = new WeakMap<object, Forms>();

interface Forms {
  readonly atOnce?: unknown;
  readonly pending?: unknown;
}

/**
 * Gives a verb a second form, for a store whose records are in this process: the answer itself, where the verb gives a
 * promise of it. Whoever passes a question on may not know which of the two it gets.
 */
export function offerAtOnce<Args extends unknown[], Answer>(
  verb: Verb<Args, Answer>,
  atOnce: (...args: Args) => Answer | Promise<Answer>,
): void {
  forms.set(verb, { ...forms.get(verb), atOnce });
}

/** Gives a verb a form without promises, for a store whose answers come from elsewhere. */
export function offerPending<Args extends unknown[], Answer>(
  verb: Verb<Args, Answer>,
  pending: (...args: Args) => Answer | Promise<Answer> | Pending<Answer>,
): void {
  forms.set(verb, { ...forms.get(verb), pending });
}

/** Asks a store: the answer at once, where its verb can, and else the promise of it. */
export function asked<Args extends unknown[], Answer>(
  store: object,
  verb: Verb<Args, Answer>,
  ...args: Args
): Answer | Promise<Answer> {
  const atOnce = forms.get(verb)?.atOnce as Form<Args, Answer | Promise<Answer>>;
  return (atOnce ?? verb).apply(store, args);
}

/** The same for whoever needs no promise, and does not mind in which asynchronous context the answer comes. */
export function askedShortly<Args extends unknown[], Answer>(
  store: object,
  verb: Verb<Args, Answer>,
  ...args: Args
): Answer | Promise<Answer> | Pending<Answer> {
  const form = forms.get(verb);
  const short = (form?.pending ?? form?.atOnce) as Form<Args, Answer | Promise<Answer> | Pending<Answer>>;
  return (short ?? verb).apply(store, args);
}

type Form<Args extends unknown[], Given> = ((...args: Args) => Given) | undefined;

import type { Pending } from "./pending.ts";

/** A verb of a store, such as `reserve`. */
type Verb<Args extends unknown[], Answer> = (...args: Args) => Promise<Answer>;

/*
 * The other forms of verbs. They are known by the verb and not by the store, so that whoever puts another verb in its
 * place, to count or to delay or to fail, is the one who is asked; and not by a property of it, which is copied with it.
 */
const forms = new WeakMap<object, unknown>();
const shortForms = new WeakMap<object, unknown>();

/**
 * Gives a verb a second form, for a store whose records are in this process: the answer itself, where the verb gives a
 * promise of it. Whoever passes a question on may not know which of the two it gets.
 */
export function offerAtOnce<Args extends unknown[], Answer>(
  verb: Verb<Args, Answer>,
  atOnce: (...args: Args) => Answer | Promise<Answer>,
): void {
  forms.set(verb, atOnce);
}

/** Gives a verb a form without promises, for a store whose answers come from elsewhere. */
export function offerPending<Args extends unknown[], Answer>(
  verb: Verb<Args, Answer>,
  pending: (...args: Args) => Answer | Promise<Answer> | Pending<Answer>,
): void {
  shortForms.set(verb, pending);
}

/** Asks a store: the answer at once, where its verb can, and else the promise of it. */
export function asked<Args extends unknown[], Answer>(
  store: object,
  verb: Verb<Args, Answer>,
  ...args: Args
): Answer | Promise<Answer> {
  const atOnce = forms.get(verb) as ((...args: Args) => Answer | Promise<Answer>) | undefined;
  return atOnce === undefined ? verb.apply(store, args) : atOnce.apply(store, args);
}

/** The same for whoever needs no promise, and does not mind in which asynchronous context the answer comes. */
export function askedShortly<Args extends unknown[], Answer>(
  store: object,
  verb: Verb<Args, Answer>,
  ...args: Args
): Answer | Promise<Answer> | Pending<Answer> {
  const pending = shortForms.get(verb) as
    | ((...args: Args) => Answer | Promise<Answer> | Pending<Answer>)
    | undefined;
  return pending === undefined ? asked(store, verb, ...args) : pending.apply(store, args);
}

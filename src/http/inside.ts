/**
 * Where the raw headers of a Node request are marked. Whatever a framework makes of a request, they are the same list,
 * and an ordinary one: a property of it costs next to nothing, whereas a weak set that every request is added to is a
 * table which grows until the whole heap is collected.
 */
const mark = Symbol("latchkey.inside");
type Marked = object & { [mark]?: true };

/** Requests of other platforms whose handler runs under a gate. */
const others = new WeakSet<object>();

/** One request is protected once, by the outermost gate, however many it passes on its way to the handler. */
export function isInside(identity: object): boolean {
  return Array.isArray(identity) ? (identity as Marked)[mark] === true : others.has(identity);
}

export function goInside(identity: object): void {
  if (Array.isArray(identity)) (identity as Marked)[mark] = true;
  else others.add(identity);
}

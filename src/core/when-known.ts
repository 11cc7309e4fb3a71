/** Goes on at once with what is there. On the path of every request each promise is paid for. */
export function whenKnown<T, Next>(
  value: T | PromiseLike<T>,
  next: (value: T) => Next | Promise<Next>,
): Next | Promise<Next> {
  return isPromiseLike(value) ? Promise.resolve(value).then(next) : next(value);
}

/** Whether it has to be waited for. */
export function isPromiseLike<T>(value: T | PromiseLike<T>): value is PromiseLike<T> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === "function";
}

/**
 * A connection as somebody sees it who must not learn yet that its client has gone. Body parsers do not read a
 * request, and frameworks do not send a response, whose connection looks closed; but a request that was let in is
 * executed to its end, whoever is still there to hear the answer.
 */
export function lastingSocket<Socket extends object>(socket: Socket): Socket {
  // One connection serves many requests, and all of them may look at it through the same eyes.
  const known = views.get(socket);
  if (known !== undefined) return known as Socket;
  const view = new Proxy(socket, lasting);
  views.set(socket, view);
  return view as Socket;
}

const views = new WeakMap<object, object>();

const lasting: ProxyHandler<object> = {
  get(socket, name) {
    if (name === "readable" || name === "writable") return true;
    const value = Reflect.get(socket, name, socket);
    // A method of a socket works on the socket alone, not on what stands in for it.
    return typeof value === "function" ? value.bind(socket) : value;
  },
};

import { ServerResponse } from "node:http";
import { finishListenersName } from "./on-finished.ts";

/** What a captured response does in place of its own methods. */
export interface Holder {
  /** Whether the response may have its headers changed as if nobody held it. */
  readonly leavesHeaders: boolean;
  /** Whom `on-finished` would call; see there. Undefined when that is no longer our concern. */
  readonly finishListeners: object | undefined;
  write(chunk: string | Uint8Array, ...rest: unknown[]): boolean;
  end(args: unknown[]): void;
  writeHead(args: unknown[]): void;
  flushHeaders(): void;
  emit(event: string, args: unknown[]): boolean;
  destroy(error: Error | undefined): void;
  setHeader(method: HeaderMethod, name: unknown, value: unknown): void;
}

/** Where a response keeps its holder, so that its methods need no closure of their own for every request. */
export const capture = Symbol("latchkey.capture");

/** Where a response keeps which of its methods an outer middleware had wrapped before it was held. */
const wrappedBelow = Symbol("latchkey.wrappedBelow");

export interface CapturedResponse extends ServerResponse {
  [capture]: Holder;
  [wrappedBelow]?: ReadonlySet<string>;
}

export type HeaderMethod = "setHeader" | "appendHeader" | "removeHeader";

/** What a response did before it was held. */
export type Below = Pick<
  ServerResponse,
  "write" | "end" | "writeHead" | "flushHeaders" | "emit" | "destroy" | HeaderMethod
>;

/**
 * Makes a response ask its holder first, and says what it did before. What is done here stays, because taking it back
 * would cost more than all the rest; the holder knows when it has nothing more to say.
 *
 * Frameworks such as Express give each response another prototype, which makes every property that is added to one
 * some forty times as expensive. They have one prototype of their own below all of those, meant to be extended, and
 * that is extended once. Any other response gets the methods itself.
 */
export function hold(res: ServerResponse): Below {
  const framework = frameworkOf(Object.getPrototypeOf(res));
  if (framework === undefined) {
    const below = methodsOf(res);
    holdItself(res);
    return below;
  }
  let below = framework;
  const wrapped = heldNames.filter((name) => Object.hasOwn(res, name));
  if (wrapped.length === 0) return below;
  // What an outer middleware has put on the response itself, to compress it for instance, comes first. In the end it
  // calls the framework's own method, and that call must not come back to the holder.
  for (const name of wrapped) {
    below = { ...below, [name]: res[name] };
    Object.assign(res, { [name]: held[name] });
  }
  (res as Partial<CapturedResponse>)[wrappedBelow] = new Set(wrapped);
  return below;
}

/** One by one: the engine remembers the shape that each of these leads to, and does not for `Object.assign`. */
function holdItself(res: ServerResponse): void {
  const methods = held as unknown as Below;
  res.write = methods.write;
  res.end = methods.end;
  res.writeHead = methods.writeHead;
  res.flushHeaders = methods.flushHeaders;
  res.emit = methods.emit;
  res.destroy = methods.destroy;
  res.setHeader = methods.setHeader;
  res.appendHeader = methods.appendHeader;
  res.removeHeader = methods.removeHeader;
}

/** The methods that a framework's responses had before theirs were extended, by each prototype that was met. */
const frameworks = new WeakMap<object, Below | undefined>();

function frameworkOf(prototype: object): Below | undefined {
  if (prototype === ServerResponse.prototype) return undefined;
  if (!frameworks.has(prototype)) frameworks.set(prototype, extendFramework(prototype));
  return frameworks.get(prototype);
}

function extendFramework(prototype: object): Below | undefined {
  let own: object | null = prototype;
  while (own !== null && Object.getPrototypeOf(own) !== ServerResponse.prototype)
    own = Object.getPrototypeOf(own);
  // Not a response of HTTP/1.
  if (own === null) return undefined;
  const known = frameworks.get(own);
  if (known !== undefined) return known;
  const below = methodsOf(own as ServerResponse);
  const methods: Record<string, unknown> = {};
  for (const name of heldNames) {
    const plain = below[name] as (...args: unknown[]) => unknown;
    const ours = held[name] as (...args: unknown[]) => unknown;
    const isHeader = name === "setHeader" || name === "appendHeader" || name === "removeHeader";
    methods[name] = isHeader
      ? // Two parameters instead of a list: frameworks set several headers for each answer.
        function (this: Partial<CapturedResponse>, header: unknown, value: unknown) {
          const holder = this[capture];
          const isOurs =
            holder !== undefined && !holder.leavesHeaders && this[wrappedBelow]?.has(name) !== true;
          return (isOurs ? ours : plain).call(this, header, value);
        }
      : function (this: Partial<CapturedResponse>, ...args: unknown[]) {
          const isOurs = this[capture] !== undefined && this[wrappedBelow]?.has(name) !== true;
          return (isOurs ? ours : plain).apply(this, args);
        };
  }
  Object.assign(own, methods);
  Object.defineProperty(own, finishListenersName, {
    configurable: true,
    get(this: Partial<CapturedResponse>) {
      return this[capture]?.finishListeners;
    },
    set(this: object, value: unknown) {
      Object.defineProperty(this, finishListenersName, {
        value,
        configurable: true,
        enumerable: true,
        writable: true,
      });
    },
  });
  frameworks.set(own, below);
  return below;
}

function methodsOf(res: ServerResponse): Below {
  const { write, end, writeHead, flushHeaders, emit, destroy, setHeader, appendHeader, removeHeader } = res;
  return { write, end, writeHead, flushHeaders, emit, destroy, setHeader, appendHeader, removeHeader };
}

const held = {
  write(this: CapturedResponse, chunk: string | Uint8Array, ...rest: unknown[]) {
    return this[capture].write(chunk, ...rest);
  },
  end(this: CapturedResponse, ...args: unknown[]) {
    this[capture].end(args);
    return this;
  },
  writeHead(this: CapturedResponse, ...args: unknown[]) {
    this[capture].writeHead(args);
    return this;
  },
  flushHeaders(this: CapturedResponse) {
    this[capture].flushHeaders();
  },
  emit(this: CapturedResponse, event: string, ...args: unknown[]) {
    return this[capture].emit(event, args);
  },
  destroy(this: CapturedResponse, error?: Error) {
    this[capture].destroy(error);
    return this;
  },
  setHeader(this: CapturedResponse, name: unknown, value: unknown) {
    this[capture].setHeader("setHeader", name, value);
    return this;
  },
  appendHeader(this: CapturedResponse, name: unknown, value: unknown) {
    this[capture].setHeader("appendHeader", name, value);
    return this;
  },
  removeHeader(this: CapturedResponse, name: unknown) {
    this[capture].setHeader("removeHeader", name, undefined);
  },
};

const heldNames = Object.keys(held) as (keyof typeof held)[];

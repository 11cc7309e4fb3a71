import { ServerResponse } from "node:http";
import { finishListenersName } from "./on-finished.ts";

/** What a captured response does in place of its own methods. */
export interface Holder {
  /** Whether the response may have its headers changed as if nobody held it. */
  readonly leavesHeaders: boolean;
  /** Which of the response's methods an outer middleware had wrapped before it was held. */
  wrappedBelow: ReadonlySet<string> | undefined;
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
const holderName = Symbol("latchkey.holder");

interface HeldResponse extends ServerResponse {
  [holderName]: Holder;
}

/** The holders of a framework's responses: looking one up here takes a tenth of the time that a property takes. */
const holders = new WeakMap<object, Holder>();

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
export function hold(res: ServerResponse, holder: Holder): Below {
  const framework = frameworkOf(Object.getPrototypeOf(res));
  if (framework === undefined) {
    const below = methodsOf(res);
    holdItself(res, holder);
    return below;
  }
  let below = framework;
  holders.set(res, holder);
  const wrapped = heldNames.filter((name) => Object.hasOwn(res, name));
  if (wrapped.length === 0) return below;
  // What an outer middleware has put on the response itself, to compress it for instance, comes first. In the end it
  // calls the framework's own method, and that call must not come back to the holder.
  for (const name of wrapped) {
    below = { ...below, [name]: res[name] };
    Object.assign(res, { [name]: frameworkHeld[name] });
  }
  holder.wrappedBelow = new Set(wrapped);
  return below;
}

/** One by one: the engine remembers the shape that each of these leads to, and does not for `Object.assign`. */
function holdItself(res: ServerResponse, holder: Holder): void {
  const methods = held as unknown as Below;
  (res as HeldResponse)[holderName] = holder;
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
    const ours = frameworkHeld[name] as (...args: unknown[]) => unknown;
    const isHeader = name === "setHeader" || name === "appendHeader" || name === "removeHeader";
    methods[name] = isHeader
      ? // Two parameters instead of a list: frameworks set several headers for each answer.
        function (this: object, header: unknown, value: unknown) {
          const holder = holders.get(this);
          const isOurs =
            holder !== undefined && !holder.leavesHeaders && holder.wrappedBelow?.has(name) !== true;
          return (isOurs ? ours : plain).call(this, header, value);
        }
      : function (this: object, ...args: unknown[]) {
          const holder = holders.get(this);
          const isOurs = holder !== undefined && holder.wrappedBelow?.has(name) !== true;
          return (isOurs ? ours : plain).apply(this, args);
        };
  }
  Object.assign(own, methods);
  Object.defineProperty(own, finishListenersName, {
    configurable: true,
    get(this: object) {
      return holders.get(this)?.finishListeners;
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

/** What a held response does, given where its holder is found. */
function heldMethods(holderOf: (res: ServerResponse) => Holder) {
  return {
    write(this: ServerResponse, chunk: string | Uint8Array, ...rest: unknown[]) {
      return holderOf(this).write(chunk, ...rest);
    },
    end(this: ServerResponse, ...args: unknown[]) {
      holderOf(this).end(args);
      return this;
    },
    writeHead(this: ServerResponse, ...args: unknown[]) {
      holderOf(this).writeHead(args);
      return this;
    },
    flushHeaders(this: ServerResponse) {
      holderOf(this).flushHeaders();
    },
    emit(this: ServerResponse, event: string, ...args: unknown[]) {
      return holderOf(this).emit(event, args);
    },
    destroy(this: ServerResponse, error?: Error) {
      holderOf(this).destroy(error);
      return this;
    },
    setHeader(this: ServerResponse, name: unknown, value: unknown) {
      holderOf(this).setHeader("setHeader", name, value);
      return this;
    },
    appendHeader(this: ServerResponse, name: unknown, value: unknown) {
      holderOf(this).setHeader("appendHeader", name, value);
      return this;
    },
    removeHeader(this: ServerResponse, name: unknown) {
      holderOf(this).setHeader("removeHeader", name, undefined);
    },
  };
}

const held = heldMethods((res) => (res as HeldResponse)[holderName]);
const frameworkHeld = heldMethods((res) => holders.get(res) as Holder);

const heldNames = Object.keys(held) as (keyof typeof held)[];

import { ServerResponse } from "node:http";
import { finishListenersName } from "./on-finished.ts";
import { SpentHolder } from "./spent-holder.ts";

/** What a captured response does in place of its own methods. Each is told which response it is about. */
export interface Holder {
  /** Whether the response may have its headers changed as if nobody held it. */
  readonly leavesHeaders: boolean;
  /** Which of the response's methods an outer middleware had wrapped before it was held. */
  wrappedBelow: ReadonlySet<string> | undefined;
  /** Whom `on-finished` would call; see there. Undefined when that is no longer our concern. */
  readonly finishListeners: object | undefined;
  write(res: ServerResponse, chunk: string | Uint8Array, rest: unknown[]): boolean;
  end(res: ServerResponse, args: unknown[]): void;
  writeHead(res: ServerResponse, args: unknown[]): void;
  flushHeaders(res: ServerResponse): void;
  emit(res: ServerResponse, event: string, args: unknown[]): boolean;
  destroy(res: ServerResponse, error: Error | undefined): void;
  setHeader(res: ServerResponse, method: HeaderMethod, name: unknown, value: unknown): void;
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
  let { below } = framework;
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

/**
 * The answer is sent, and from now on its holder would only ignore what is done to the response. A framework's responses
 * get one holder for all of them: a value of a weak map is kept alive by the garbage collector until it has looked at the
 * whole heap, and with it, here, everything that belongs to the request.
 */
export function letGo(res: ServerResponse, holder: Holder): void {
  const framework = frameworkOf(Object.getPrototypeOf(res));
  // What an outer middleware still sends goes through the holder, which lets it pass.
  if (framework !== undefined && holder.wrappedBelow === undefined) holders.set(res, framework.spent);
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

interface FrameworkResponses {
  /** What they did before they were extended. */
  readonly below: Below;
  /** Holds all of those that are sent. */
  readonly spent: Holder;
}

/** By each prototype that was met. */
const frameworks = new WeakMap<object, FrameworkResponses | undefined>();

function frameworkOf(prototype: object): FrameworkResponses | undefined {
  if (prototype === ServerResponse.prototype) return undefined;
  if (!frameworks.has(prototype)) frameworks.set(prototype, extendFramework(prototype));
  return frameworks.get(prototype);
}

function extendFramework(prototype: object): FrameworkResponses | undefined {
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
  const responses = { below, spent: new SpentHolder(below) };
  frameworks.set(own, responses);
  return responses;
}

function methodsOf(res: ServerResponse): Below {
  const { write, end, writeHead, flushHeaders, emit, destroy, setHeader, appendHeader, removeHeader } = res;
  return { write, end, writeHead, flushHeaders, emit, destroy, setHeader, appendHeader, removeHeader };
}

/** What a held response does, given where its holder is found. */
function heldMethods(holderOf: (res: ServerResponse) => Holder) {
  return {
    write(this: ServerResponse, chunk: string | Uint8Array, ...rest: unknown[]) {
      return holderOf(this).write(this, chunk, rest);
    },
    end(this: ServerResponse, ...args: unknown[]) {
      holderOf(this).end(this, args);
      return this;
    },
    writeHead(this: ServerResponse, ...args: unknown[]) {
      holderOf(this).writeHead(this, args);
      return this;
    },
    flushHeaders(this: ServerResponse) {
      holderOf(this).flushHeaders(this);
    },
    emit(this: ServerResponse, event: string, ...args: unknown[]) {
      return holderOf(this).emit(this, event, args);
    },
    destroy(this: ServerResponse, error?: Error) {
      holderOf(this).destroy(this, error);
      return this;
    },
    setHeader(this: ServerResponse, name: unknown, value: unknown) {
      holderOf(this).setHeader(this, "setHeader", name, value);
      return this;
    },
    appendHeader(this: ServerResponse, name: unknown, value: unknown) {
      holderOf(this).setHeader(this, "appendHeader", name, value);
      return this;
    },
    removeHeader(this: ServerResponse, name: unknown) {
      holderOf(this).setHeader(this, "removeHeader", name, undefined);
    },
  };
}

const held = heldMethods((res) => (res as HeldResponse)[holderName]);
const frameworkHeld = heldMethods((res) => holders.get(res) as Holder);

const heldNames = Object.keys(held) as (keyof typeof held)[];

import type { GatewayConfig, RouteConfig } from "./config/schema.ts";
import { matches, type PathPattern, parsePattern } from "./pattern.ts";
import { foldOf, methodsOf } from "./policies.ts";

interface Entry {
  readonly index: number;
  readonly methods: ReadonlySet<string> | "all";
  readonly pattern: PathPattern;
  readonly isLenient: boolean;
  readonly fold: (text: string) => string;
}

/**
 * Finds the route of a request. In doubt a request counts as protected: a protected route also takes spellings that
 * lenient services read as its path (another case, a slash at the end, `;parameters`), and one that is not protected
 * takes nothing but its own.
 */
export class Router {
  readonly #entries: readonly Entry[];
  readonly #ignoresSlash: boolean;
  readonly #ignoresSemicolon: boolean;

  constructor(config: GatewayConfig) {
    this.#entries = config.routes.map((route, index) => entryOf(config, route, index));
    this.#ignoresSlash = config.matching.trailingSlash === "ignore";
    this.#ignoresSemicolon = config.matching.semicolon === "ignore";
  }

  /** The number of the first route that matches; undefined if none does. `path` is what `refusalOf` has let through. */
  find(method: string, path: string): number | undefined {
    if (this.#entries.length === 0) return undefined;
    const exact = segmentsOf(path);
    const lenient = this.#lenient(path);
    return this.#entries.find(({ methods, pattern, isLenient, fold }) => {
      if (methods !== "all" && !methods.has(method)) return false;
      return matches(pattern, isLenient ? lenient : exact, fold);
    })?.index;
  }

  #lenient(path: string): readonly string[] {
    const plain = this.#ignoresSemicolon && path.includes(";") ? path.replaceAll(/;[^/]*/g, "") : path;
    const isClosed = this.#ignoresSlash && plain.length > 1 && plain.endsWith("/");
    return segmentsOf(isClosed ? plain.slice(0, -1) : plain);
  }
}

function entryOf(config: GatewayConfig, route: RouteConfig, index: number): Entry {
  const methods = methodsOf(config, route);
  return {
    index,
    methods: methods === "all" ? methods : new Set(methods),
    pattern: parsePattern(route.path),
    isLenient: route.protect !== false,
    fold: foldOf(config, route),
  };
}

/** Decoded, so that an escape is no other spelling of a route. What cannot be decoded stays as it is. */
function segmentsOf(path: string): readonly string[] {
  if (path === "/") return [];
  const segments = path.slice(1).split("/");
  return path.includes("%") ? segments.map(decoded) : segments;
}

function decoded(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}

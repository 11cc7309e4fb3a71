import type { Framework } from "../application.ts";
import { expressVersions } from "./express.ts";
import { fastify } from "./fastify.ts";
import { fetch } from "./fetch.ts";
import { hono } from "./hono.ts";
import { koaOrders } from "./koa.ts";
import { node } from "./node.ts";

export const frameworks: readonly Framework[] = [
  fetch,
  node,
  ...expressVersions,
  fastify,
  hono,
  ...koaOrders,
];

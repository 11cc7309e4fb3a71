import { createServer, type RequestListener } from "node:http";
import type { Application as ExpressApplication, RequestHandler } from "express";
import { idempotent } from "../../../src/adapters/express.ts";
import { type Application, type Framework, listening } from "../application.ts";
import { custom } from "../custom.ts";
import { type Express, express4, express5 } from "../frameworks/express.ts";
import type { SiteOptions } from "../harness.ts";

export const versions: Readonly<Record<string, Express>> = { "express 5": express5, "express 4": express4 };

type Build = (
  app: ExpressApplication,
  protect: RequestHandler,
  express: Express,
  routes: Application["routes"],
) => void;

/** An Express application of one test's own. */
export function servingWith(express: Express): (build: Build) => Framework {
  return (build) =>
    custom("express", (application) => {
      const app = express();
      build(app, idempotent(application.latchkey, application.policy), express, application.routes);
      return listening(createServer(app as RequestListener));
    });
}

/** Nothing but what the test itself sets up. */
export const plain: SiteOptions = { routes: {} };

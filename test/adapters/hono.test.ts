import { topics } from "./behaviour/topics.ts";
import { hono } from "./frameworks/hono.ts";
import { describeAdapter } from "./harness.ts";

describeAdapter(hono, topics);

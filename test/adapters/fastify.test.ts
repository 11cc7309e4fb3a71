import { topics } from "./behaviour/topics.ts";
import { fastify } from "./frameworks/fastify.ts";
import { describeAdapter } from "./harness.ts";

describeAdapter(fastify, topics);

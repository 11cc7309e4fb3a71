import { topics } from "./behaviour/topics.ts";
import { fetch } from "./frameworks/fetch.ts";
import { describeAdapter } from "./harness.ts";

describeAdapter(fetch, topics);

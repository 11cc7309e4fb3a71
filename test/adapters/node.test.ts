import { topics } from "./behaviour/topics.ts";
import { node } from "./frameworks/node.ts";
import { describeAdapter } from "./harness.ts";

describeAdapter(node, topics);

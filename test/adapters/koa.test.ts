import { topics } from "./behaviour/topics.ts";
import { koaOrders } from "./frameworks/koa.ts";
import { describeAdapter } from "./harness.ts";

for (const koa of koaOrders) describeAdapter(koa, topics);

import autocannon from "autocannon"; import { startPart } from "./lib/gateway.js"; import { order } from "./lib/payload.js";
const up = await startPart("upstream");
process.execArgv.push("--cpu-prof","--cpu-prof-dir=/tmp/scratch-gw/prof");
const p = await startPart("pass", up.url);
const body = JSON.stringify(order);
await autocannon({url:p.url+"/charges",connections:32,amount:12000,method:"POST",body,headers:{"content-type":"application/json","idempotency-key":"k"}});
process.disconnect?.(); process.exit();

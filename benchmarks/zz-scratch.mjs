import autocannon from "autocannon"; import { startPart } from "./lib/gateway.js"; import { order } from "./lib/payload.js";
const up = await startPart("upstream");
const parts = { bare: await startPart("bare", up.url), pass: await startPart("pass", up.url) };
const body = JSON.stringify(order); const n = Number(process.argv[2] ?? 15000);
for (let r=0;r<3;r++) for (const k of Object.keys(parts)) { const p=parts[k]; const a=(await p.usage()).cpu; const t=performance.now(); const x=await autocannon({url:p.url+"/charges",connections:32,amount:n,method:"POST",body,headers:{"content-type":"application/json","idempotency-key":"k"}}); const b=(await p.usage()).cpu; console.log(k, "cpu µs/req", Math.round((b.user+b.system-a.user-a.system)/n), "rate", Math.round(n/((performance.now()-t)/1000)), x.non2xx, x.errors); }
for (const p of Object.values(parts)) await p.stop(); await up.stop();

export { type MetricsServer, type MetricsServerOptions, serveMetrics } from "./metrics-server.ts";
export type { MetricsOptions } from "./options.ts";
export { type PrometheusMetrics, type PrometheusOptions, prometheusMetrics } from "./prometheus-metrics.ts";

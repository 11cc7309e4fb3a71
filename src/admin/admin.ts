export { type Reporting, type ReportOptions, reportActivity } from "./activity/activity.ts";
export { type AdminHandler, type AdminOptions, adminHandler } from "./admin-handler.ts";
export { Administration, type AdministrationOptions } from "./administration.ts";
export type { LiveSource } from "./live.ts";
export type { Operator } from "./operators.ts";
export { type AdminServer, type AdminServerOptions, serveAdmin } from "./serve-admin.ts";
export type * from "./views.ts";
export { activitySeries } from "./views.ts";

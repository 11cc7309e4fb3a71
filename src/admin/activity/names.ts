import type { Resolution } from "./sheet.ts";

/** What the notes are called in which processes tell of themselves. */
export const noteNames = {
  directory: "activity:processes",
  process: (id: string) => `activity:process:${id}`,
  duplicates: (id: string) => `activity:duplicates:${id}`,
  sheet: (id: string, resolution: Resolution, from: number) => `activity:${resolution.name}:${from}:${id}`,
} as const;

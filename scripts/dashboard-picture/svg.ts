/** A light ground of its own, so that the picture can be read on a dark page too. */
export const ground = "#f4f6f9";
export const paper = "#ffffff";
export const ink = "#1f2933";
export const faintInk = "#66727f";
export const faint = "#e3e8ee";

export interface TextOptions {
  readonly size?: number;
  readonly anchor?: "start" | "middle" | "end";
  readonly fill?: string;
  readonly weight?: number;
}

export function text(x: number, y: number, content: string, options: TextOptions = {}): string {
  const { size = 11, anchor = "start", fill = faintInk, weight = 400 } = options;
  return (
    `<text x="${round(x)}" y="${round(y)}" font-size="${size}" text-anchor="${anchor}" fill="${fill}" ` +
    `font-weight="${weight}">${escaped(content)}</text>`
  );
}

export function line(x1: number, y1: number, x2: number, y2: number, stroke = faint): string {
  return `<line x1="${round(x1)}" y1="${round(y1)}" x2="${round(x2)}" y2="${round(y2)}" stroke="${stroke}"/>`;
}

/** Enough for deciding where a line of text is full. */
export function widthOf(content: string, size: number): number {
  return content.length * size * 0.6;
}

export function round(value: number): number {
  return Math.round(value * 10) / 10;
}

export function escaped(content: string): string {
  return content.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}

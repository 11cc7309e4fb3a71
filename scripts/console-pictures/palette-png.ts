import { deflateSync, inflateSync } from "node:zlib";

/**
 * The same picture with 256 colours, which is a third of the bytes: a page has few colours, and what antialiasing makes of
 * them is close to one of those. Takes what a browser writes: eight bits each of red, green and blue, not interlaced.
 */
export function withPalette(png: Buffer): Buffer {
  const { width, height, channels, pixels } = decoded(png);
  const colours = new Map<number, number>();
  const coarse = new Uint32Array(width * height);
  for (let at = 0; at < coarse.length; at++) {
    const [red, green, blue] = [0, 1, 2].map((channel) => rounded(pixels[at * channels + channel] ?? 0));
    const colour = ((red ?? 0) << 16) | ((green ?? 0) << 8) | (blue ?? 0);
    coarse[at] = colour;
    colours.set(colour, (colours.get(colour) ?? 0) + 1);
  }
  const palette = paletteOf(colours);
  const indexOf = new Map([...colours.keys()].map((colour) => [colour, nearest(palette, colour)]));

  const rows = Buffer.alloc((width + 1) * height);
  for (let row = 0; row < height; row++) {
    for (let column = 0; column < width; column++) {
      rows[row * (width + 1) + 1 + column] = indexOf.get(coarse[row * width + column] ?? 0) ?? 0;
    }
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width, 0);
  header.writeUInt32BE(height, 4);
  header.set([8, 3], 8); // Eight bits, by palette.
  return Buffer.concat([
    signature,
    chunk("IHDR", header),
    chunk(
      "PLTE",
      Buffer.from(palette.flatMap((colour) => [colour >> 16, (colour >> 8) & 255, colour & 255])),
    ),
    chunk("IDAT", deflateSync(rows, { level: 9 })),
    chunk("IEND", Buffer.alloc(0)),
  ]);
}

const signature = Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]);

/** Nobody sees a difference of two in 255, and colours that are that close count as one. White stays white. */
function rounded(value: number): number {
  return Math.min(255, Math.round(value / 3) * 3);
}

/** The most used colours, and then those that are furthest from all of these: what is small may be a colour of its own. */
function paletteOf(colours: ReadonlyMap<number, number>): readonly number[] {
  const byUse = [...colours.entries()]
    .toSorted(([, one], [, other]) => other - one)
    .map(([colour]) => colour);
  const palette = byUse.slice(0, 192);
  const rest = byUse.slice(192);
  const distances = rest.map((colour) => distanceOf(palette[nearest(palette, colour)] ?? 0, colour));
  while (palette.length < Math.min(256, byUse.length)) {
    const furthest = distances.indexOf(Math.max(...distances));
    const added = rest[furthest] ?? 0;
    palette.push(added);
    rest.forEach((colour, index) => {
      distances[index] = Math.min(distances[index] ?? 0, distanceOf(added, colour));
    });
  }
  return palette;
}

function distanceOf(one: number, other: number): number {
  return (
    ((one >> 16) - (other >> 16)) ** 2 +
    (((one >> 8) & 255) - ((other >> 8) & 255)) ** 2 +
    ((one & 255) - (other & 255)) ** 2
  );
}

function nearest(palette: readonly number[], colour: number): number {
  let best = 0;
  let bestDistance = Number.POSITIVE_INFINITY;
  palette.forEach((candidate, index) => {
    const distance = distanceOf(candidate, colour);
    if (distance >= bestDistance) return;
    best = index;
    bestDistance = distance;
  });
  return best;
}

function decoded(png: Buffer) {
  const parts: Buffer[] = [];
  let [width, height, channels] = [0, 0, 0];
  for (let at = signature.length; at < png.length; ) {
    const length = png.readUInt32BE(at);
    const name = png.toString("latin1", at + 4, at + 8);
    const data = png.subarray(at + 8, at + 8 + length);
    if (name === "IHDR") {
      width = data.readUInt32BE(0);
      height = data.readUInt32BE(4);
      channels = data[9] === 6 ? 4 : 3;
    }
    if (name === "IDAT") parts.push(data);
    at += length + 12;
  }
  return {
    width,
    height,
    channels,
    pixels: unfiltered(inflateSync(Buffer.concat(parts)), width * channels, channels),
  };
}

/** Each row says how it was made from the bytes to its left and above it. */
function unfiltered(data: Buffer, stride: number, channels: number): Buffer {
  const rows = data.length / (stride + 1);
  const pixels = Buffer.alloc(rows * stride);
  for (let row = 0; row < rows; row++) {
    const filter = data[row * (stride + 1)];
    for (let column = 0; column < stride; column++) {
      const at = row * stride + column;
      const left = column < channels ? 0 : (pixels[at - channels] ?? 0);
      const up = row === 0 ? 0 : (pixels[at - stride] ?? 0);
      const corner = row === 0 || column < channels ? 0 : (pixels[at - stride - channels] ?? 0);
      const added = [0, left, up, (left + up) >> 1, paeth(left, up, corner)][filter ?? 0] ?? 0;
      pixels[at] = ((data[row * (stride + 1) + 1 + column] ?? 0) + added) & 255;
    }
  }
  return pixels;
}

function paeth(left: number, up: number, corner: number): number {
  const guess = left + up - corner;
  const [toLeft, toUp, toCorner] = [Math.abs(guess - left), Math.abs(guess - up), Math.abs(guess - corner)];
  if (toLeft <= toUp && toLeft <= toCorner) return left;
  return toUp <= toCorner ? up : corner;
}

function chunk(name: string, data: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(name, "latin1"), data]);
  const framed = Buffer.alloc(named.length + 8);
  framed.writeUInt32BE(data.length, 0);
  named.copy(framed, 4);
  framed.writeUInt32BE(checksum(named), named.length + 4);
  return framed;
}

/** CRC-32, which Node 20 has no function for. */
function checksum(data: Buffer): number {
  let crc = 0xffffffff;
  for (const byte of data) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return (crc ^ 0xffffffff) >>> 0;
}

import { IncomingMessage } from "node:http";
import { Socket } from "node:net";
import { expect, it } from "vitest";
import { goInside, isInside } from "../../src/http/inside.ts";
import { nodeRequest } from "../../src/http/node-request.ts";

it("a request is inside once it has passed a gate, whatever the next framework calls it", () => {
  const req = new IncomingMessage(new Socket());
  const other = new IncomingMessage(new Socket());
  goInside(nodeRequest(req, req).identity);
  expect(isInside(nodeRequest(req, { raw: req }).identity)).toBe(true);
  // As Express does it.
  Object.setPrototypeOf(req, Object.create(IncomingMessage.prototype));
  expect(isInside(nodeRequest(req, req).identity)).toBe(true);
  expect(isInside(nodeRequest(other, other).identity)).toBe(false);
});

it("a request of another platform is known by itself", () => {
  const [request, other] = [new Request("http://a/"), new Request("http://a/")];
  goInside(request);
  expect([isInside(request), isInside(other)]).toEqual([true, false]);
});

import { type Check, pass, warn } from "../check.ts";
import { fieldOf } from "../wire.ts";

const expiryHeaders = ["Idempotency-Expires", "Idempotency-Key-Expires"];

export const headers: readonly Check[] = [
  {
    id: "headers.information",
    title: "what answers tell about their key",
    async run(probe) {
      const { keyHeader, profile } = probe.settings;
      const operation = probe.operation();
      const answer = await probe.send(operation);
      const isEchoed = fieldOf(answer, keyHeader)?.replaceAll('"', "") === operation.key;
      const expiry = expiryHeaders.find((name) => fieldOf(answer, name) !== undefined);
      const kept =
        expiry === undefined ? "nothing says how long it is kept" : `${expiry} says how long it is kept`;
      if (isEchoed) return pass(`the key is sent back; ${kept}`);
      return profile.echoesKey
        ? warn(`the key is not sent back in ${keyHeader}, as with ${profile.source}; ${kept}`)
        : pass(`the key is not sent back; ${kept}`);
    },
  },
];

/** What a small payments API answers. */
export const charge = {
  id: "ch_3MmlLrLkdIwHu7ix0snN0B15",
  object: "charge",
  amount: 500,
  currency: "usd",
  description: "A coffee, and another one for the colleague who fixed the build",
  status: "succeeded",
  receipt: "https://example.com/receipts/ch_3MmlLrLkdIwHu7ix0snN0B15",
  created: 1_771_000_000,
  captured: true,
};

/** The same as bytes: about 300 of them. */
export const chargeBytes = Buffer.from(JSON.stringify(charge));

/** What a client of that API sends. */
export const order = {
  amount: 500,
  currency: "usd",
  customer: "cus_9s6XKzkNRiz8i3",
  source: "tok_visa",
};

// Everything that the module promises, in one page; the test compares what comes back.
import { Encoder, EncoderError, similarity, topK } from "/bundle/web/msdc.js";

const request = await (await fetch("/request/request.json")).json();
const refused = async (work) => {
  try {
    await work();
    return null;
  } catch (error) {
    return { name: error.name, message: error.message, known: error instanceof EncoderError };
  }
};

export default async function run() {
  const steps = [];
  const encoder = await Encoder.load("/bundle", { onProgress: (step) => steps.push(step) });
  const rows = await encoder.tokenize(request.texts, { prompt: "" });
  const vectors = await encoder.encode(request.texts.slice(0, request.encoded), { prompt: "" });
  const found = { facts: { ...encoder }, rows, vectors: vectors.map((vector) => [...vector]) };
  found.progress = { first: steps[0], last: steps.at(-1), rising: steps.every((s, i) => !i || s.loaded >= steps[i - 1].loaded) };
  found.selfTest = await encoder.selfTest();
  found.prompted = {
    ids: await encoder.tokenize(["a note"], { prompt: "query: " }),
    joined: await encoder.tokenize(["query: a note"]),
    short: (await encoder.encode(["a note"], { truncateDim: 3 }))[0].length,
    none: await encoder.encode([]),
  };
  const [one, ids] = [await encoder.encode(request.texts[1], { prompt: "" }), await encoder.tokenize(request.texts[1], { prompt: "" })];
  found.single = { values: [...one], ids, bytes: structuredClone(vectors[0]).buffer.byteLength };
  found.similar = [similarity(vectors[0], vectors[0]), topK(vectors[1], vectors, 3).map((hit) => hit.row)];
  found.refused = {
    text: await refused(() => encoder.encode({})),
    number: await refused(() => encoder.encode([1])),
    name: await refused(() => encoder.encode(["x"], { promptName: "nothing" })),
    width: await refused(() => encoder.encode(["x"], { truncateDim: 10 ** 6 })),
    least: await refused(() => encoder.tokenize(["x"], { maxLength: 1 })),
    absent: await refused(() => Encoder.load("/nothing-here")),
    pinned: await refused(() => Encoder.load("/bundle", { sha256: "0".repeat(64) })),
    damaged: await refused(() => Encoder.load("/damaged", { cache: false })),
    short: await refused(() => Encoder.load("/short", { cache: false })),
    long: await refused(() => Encoder.load("/long", { cache: false })),
    spoiled: await refused(async () => (await Encoder.load("/spoiled", { cache: false })).encode(["x"])),
    edited: await refused(() => Encoder.load("/edited", { cache: false })),
  };
  // A list that is cancelled under way, and a call that overlaps with it and is not.
  const many = Array.from({ length: 4000 }, (_, i) => `${request.texts[i % 20]} ${i}`);
  const control = new AbortController();
  let seen = 0;
  const cancelled = refused(() =>
    encoder.encode(many, { signal: control.signal, onProgress: ({ done }) => { seen = done; control.abort(); } }));
  const [beside] = await encoder.encode([request.texts[0]], { prompt: "" });
  found.cancelled = { ...(await cancelled), seen, of: many.length, beside: similarity(beside, vectors[0]) };
  const gone = new AbortController();
  gone.abort();
  found.early = await refused(() => Encoder.load("/bundle", { signal: gone.signal }));
  // The second start reads the browser's cache; this thread gives the same vectors as the worker.
  const before = (await (await fetch("/request/request.json")).json(), performance.getEntriesByType("resource").length);
  const here = await Encoder.load("/bundle", { worker: false });
  const fetched = performance.getEntriesByType("resource").slice(before).map((entry) => new URL(entry.name).pathname);
  const again = await here.encode(request.texts.slice(0, 3), { prompt: "" });
  found.again = { fetched, same: again.every((vector, i) => vector.every((value, k) => value === vectors[i][k])) };
  const waiting = refused(() => encoder.encode(many));
  encoder.close();
  found.closed = [await waiting, await refused(() => encoder.encode(["x"]))];
  found.cleared = [await Encoder.clearCache(), await caches.has("msdc")];
  return found;
}

// node refusals.mjs MODULE: what the module answers to options, addresses and texts that are no such thing.
import { pathToFileURL } from "node:url";

const { Encoder } = await import(pathToFileURL(process.argv[2]));
const said = async (work) => {
  try {
    await work();
    return "accepted";
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
};
const encoder = new Encoder({ call: async () => ({ values: new Float32Array(2), width: 2 }) }, {});
console.log(JSON.stringify({
  path: await said(() => Encoder.load("/some/folder")),
  load: await said(() => Encoder.load("http://127.0.0.1:9/x", { sha: "1" })),
  encode: await said(() => encoder.encode("a", { promt: "x" })),
  tokenize: await said(() => encoder.tokenize(["a"], { truncateDim: 2 })),
  selfTest: await said(() => encoder.selfTest({ sginal: null })),
  half: await said(() => encoder.encode(["a", "b\ud800c"])),
  low: await said(() => encoder.tokenize("\udfff")),
  halfPrompt: await said(() => encoder.encode("a", { prompt: "\ud83d" })),
  number: await said(() => encoder.encode("a", { prompt: 7 })),
  hole: await said(() => encoder.encode([, "a"])),
  pair: await said(() => encoder.encode("\u{1f600}")),
  known: await said(() => encoder.encode("a", { prompt: "x", truncateDim: 1, onProgress: () => {} })),
}));

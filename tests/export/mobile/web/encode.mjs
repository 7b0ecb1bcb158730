// node encode.mjs BUNDLE-URL RUNTIME-FOLDER MODULE TEXTS-FILE: the joined module in this thread, without crypto.subtle.
import { webcrypto } from "node:crypto";
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

// What a page has that is no secure context.
const crypto = { getRandomValues: (array) => webcrypto.getRandomValues(array) };
Object.defineProperty(globalThis, "crypto", { value: crypto, configurable: true });
const [url, runtime, module, file] = process.argv.slice(2);
const { Encoder } = await import(pathToFileURL(module));
// Without the binary, the runtime looks in Node for a file that only its whole package holds.
const folder = pathToFileURL(`${runtime}/`).href;
const wrapped = `import { readFileSync } from "node:fs";
import * as ort from "${folder}ort.wasm.bundle.min.mjs";
ort.env.wasm.wasmBinary = readFileSync(new URL("${folder}ort-wasm-simd-threaded.wasm"));
export const { InferenceSession, Tensor, env } = ort;`;
const encoder = await Encoder.load(url, { runtime: `data:text/javascript,${encodeURIComponent(wrapped)}` });
const texts = JSON.parse(readFileSync(file, "utf8"));
const vectors = await encoder.encode(texts);
console.log(JSON.stringify({
  kind: encoder.name, rows: await encoder.tokenize(texts), vectors: vectors.map((vector) => [...vector]),
  selfTest: await encoder.selfTest(),
}));
process.exit(0);

// transformers.js in Node with onnxruntime-web's WebAssembly build, reading models from a folder only.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

export const request = JSON.parse(readFileSync(process.argv[2], "utf8"));

export async function library() {
  const ort = await import(pathToFileURL(request.runtime));
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = readFileSync(request.wasm).buffer;
  // Without addresses of its own the library would ask a content network for other files.
  ort.env.wasm.wasmPaths = { wasm: pathToFileURL(request.wasm).href };
  // transformers.js takes the runtime that a page offers; here with bytes instead of Node's paths.
  const create = ort.InferenceSession.create.bind(ort.InferenceSession);
  const bytes = (source) => (typeof source === "string" ? new Uint8Array(readFileSync(source)) : source);
  const InferenceSession = { create: (program, options) => create(bytes(program), { ...options, executionProviders: ["wasm"] }) };
  globalThis[Symbol.for("onnxruntime")] = { ...ort, InferenceSession };
  const found = await import(pathToFileURL(request.library));
  found.env.allowRemoteModels = false;
  found.env.localModelPath = request.parent;
  return found;
}

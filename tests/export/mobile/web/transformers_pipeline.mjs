// node transformers_pipeline.mjs REQUEST: vectors of texts by a pipeline of transformers.js with onnxruntime-web.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const request = JSON.parse(readFileSync(process.argv[2], "utf8"));
const ort = await import(pathToFileURL(request.runtime));
ort.env.wasm.numThreads = 1;
ort.env.wasm.wasmBinary = readFileSync(request.wasm).buffer;
// Without addresses of its own the library would ask a content network for other files.
ort.env.wasm.wasmPaths = { wasm: pathToFileURL(request.wasm).href };
const create = ort.InferenceSession.create.bind(ort.InferenceSession);
const bytes = (source) => (typeof source === "string" ? new Uint8Array(readFileSync(source)) : source);
const InferenceSession = { create: (program, options) => create(bytes(program), { ...options, executionProviders: ["wasm"] }) };
globalThis[Symbol.for("onnxruntime")] = { ...ort, InferenceSession };
const { pipeline, env } = await import(pathToFileURL(request.library));
env.allowRemoteModels = false;
env.localModelPath = request.parent;
const out = {};
for (const dtype of ["fp32", "q8"]) {
  // device: a runtime that a page offers comes without a list of devices.
  const extractor = await pipeline("feature-extraction", request.name, { dtype, device: "auto" });
  out[dtype] = [];
  for (const texts of request.batches) out[dtype].push(...(await extractor(texts, request.options)).tolist());
}
console.log(JSON.stringify(out));

// node transformers_encode.mjs REQUEST: vectors of texts by transformers.js with onnxruntime-web's WebAssembly build.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const request = JSON.parse(readFileSync(process.argv[2], "utf8"));
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
const { AutoModel, AutoTokenizer, env } = await import(pathToFileURL(request.library));
env.allowRemoteModels = false;
env.localModelPath = request.parent;
const tokenizer = await AutoTokenizer.from_pretrained(request.name);
const model = await AutoModel.from_pretrained(request.name, {
  subfolder: "",
  model_file_name: "model",
  dtype: "fp32",
  device: "auto", // a runtime that a page offers comes without a list of devices
  session_options: { externalData: request.data.map((name) => ({ path: name, data: name })) },
});
const out = [];
for (const text of request.texts) {
  const { sentence_embedding } = await model(await tokenizer(text));
  out.push(Array.from(sentence_embedding.data));
}
console.log(JSON.stringify(out));

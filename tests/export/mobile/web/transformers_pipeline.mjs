// node transformers_pipeline.mjs REQUEST: vectors of texts by a pipeline of transformers.js with onnxruntime-web.
import { library, request } from "./transformers_wasm.mjs";

const { pipeline } = await library();
const out = {};
for (const dtype of ["fp32", "q8"]) {
  // device: a runtime that a page offers comes without a list of devices.
  const extractor = await pipeline("feature-extraction", request.name, { dtype, device: "auto" });
  out[dtype] = [];
  for (const texts of request.batches) out[dtype].push(...(await extractor(texts, request.options)).tolist());
}
console.log(JSON.stringify(out));

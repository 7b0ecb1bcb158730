// node transformers_encode.mjs REQUEST: vectors of texts by transformers.js with onnxruntime-web's WebAssembly build.
import { library, request } from "./transformers_wasm.mjs";

const { AutoModel, AutoTokenizer, Tensor, pipeline } = await library();
const tokenizer = await AutoTokenizer.from_pretrained(request.name);
const model = await AutoModel.from_pretrained(request.name, {
  subfolder: "",
  model_file_name: "model",
  dtype: "fp32",
  device: "auto", // a runtime that a page offers comes without a list of devices
  session_options: { externalData: request.data.map((name) => ({ path: name, data: name })) },
});
const session_options = { externalData: request.data.map((name) => ({ path: name, data: name })) };
const options = { dtype: "fp32", device: "auto", session_options };
const extract = await pipeline("feature-extraction", request.name, options);
const out = [];
for (const text of request.texts) {
  const feeds = { ...(await tokenizer(text)) };
  if (request.more.length) feeds.prompt_tokens = new Tensor("int64", [BigInt(request.more[0])], [1]);
  const { sentence_embedding } = await model(feeds);
  for (const pooling of ["mean", "cls"]) {
    const pooled = await extract(text, { pooling });
    const apart = Math.max(...sentence_embedding.data.map((value, i) => Math.abs(value - pooled.data[i])));
    if (!(apart < 1e-5) || pooled.dims.join() !== sentence_embedding.dims.join()) throw new Error(`${pooling}: ${apart}`);
  }
  out.push(Array.from(sentence_embedding.data));
}
console.log(JSON.stringify(out));

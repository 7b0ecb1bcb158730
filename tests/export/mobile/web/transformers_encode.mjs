// node transformers_encode.mjs REQUEST: vectors of texts by transformers.js with onnxruntime-web's WebAssembly build.
import { library, request } from "./transformers_wasm.mjs";

const { AutoModel, AutoTokenizer, Tensor } = await library();
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
  const feeds = { ...(await tokenizer(text)) };
  if (request.more.length) feeds.prompt_tokens = new Tensor("int64", [BigInt(request.more[0])], [1]);
  const { sentence_embedding } = await model(feeds);
  out.push(Array.from(sentence_embedding.data));
}
console.log(JSON.stringify(out));

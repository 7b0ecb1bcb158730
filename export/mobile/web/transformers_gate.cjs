// node transformers_gate.cjs < REQUEST: ids of texts by transformers.js, as JSON on standard output; nothing is downloaded.
// .cjs: whatever a package.json above this package sets for .js files.
const { readFileSync } = require("node:fs");
const { pathToFileURL } = require("node:url");

const request = JSON.parse(readFileSync(0, "utf8"));
import(pathToFileURL(request.library)).then(async ({ AutoTokenizer, env }) => {
  env.allowRemoteModels = false;
  env.localModelPath = request.parent;
  const tokenizer = await AutoTokenizer.from_pretrained(request.name);
  console.log(JSON.stringify(request.texts.map((text) => tokenizer(text, { return_tensor: false }).input_ids)));
});

// node tokenize.mjs REQUEST: ids of texts by the module's tokenizer, as JSON on standard output.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const request = JSON.parse(readFileSync(process.argv[2], "utf8"));
const { Tokenizer } = await import(pathToFileURL(request.module));
const tokenizer = await Tokenizer.open(new Uint8Array(readFileSync(request.file)), "tokenizer", request.manifest);
console.log(JSON.stringify(request.texts.map((text) => tokenizer.ids(text, Infinity))));

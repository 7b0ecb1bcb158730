// node tokenize.mjs REQUEST: ids of texts by a tokenizer module, as JSON on standard output.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const request = JSON.parse(readFileSync(process.argv[2], "utf8"));
const { openTokenizer } = await import(pathToFileURL(request.module));
const { utf8 } = await import(new URL("bytes.js", pathToFileURL(request.module)));
const tokenizer = openTokenizer(new Uint8Array(readFileSync(request.file)), request.part);
const started = performance.now();
const rows = request.texts.map((text) => [...tokenizer.before, ...tokenizer.segment(utf8(text)), ...tokenizer.after]);
console.error(`${((performance.now() - started) / request.texts.length) * 1000} us per text`);
console.log(JSON.stringify(rows));

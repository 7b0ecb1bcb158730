// node count.mjs REQUEST: how many texts are truncated, as JSON on standard output.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const request = JSON.parse(readFileSync(process.argv[2], "utf8"));
const runtime = await import(pathToFileURL(request.runtime));
runtime.env.wasm.wasmBinary = readFileSync(request.wasm);
const { Encoder } = await import(pathToFileURL(request.module));
const encoder = await Encoder.load(request.bundle, { runtime });
const counts = [];
for (const options of request.options) counts.push(await encoder.countTruncated(request.texts, options));
const each = [];
for (const text of request.texts) each.push(await encoder.countTruncated(text));
const refused = await encoder.countTruncated(["a", 1]).catch((error) => `${error.name}: ${error.message}`);
const mistyped = await encoder.countTruncated("a", { maxLength: 3 }).catch((error) => `${error.name}: ${error.message}`);
console.log(JSON.stringify({ counts, each, refused, mistyped, none: await encoder.countTruncated([]) }));
process.exit(0);

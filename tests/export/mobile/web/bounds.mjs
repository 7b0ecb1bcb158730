// node bounds.mjs REQUEST: what a tokenizer module makes of files by strangers, as JSON on standard output.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const request = JSON.parse(readFileSync(process.argv[2], "utf8"));
const { openTokenizer } = await import(pathToFileURL(request.module));
const { utf8 } = await import(new URL("bytes.js", pathToFileURL(request.module)));
const texts = request.texts.map(utf8);

// What was thrown, "" for nothing.
function thrown(call) {
  try {
    call();
    return "";
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
}

const found = request.files.map((file) => {
  let tokenizer = null;
  const opened = thrown(() => (tokenizer = openTokenizer(new Uint8Array(readFileSync(file)), request.part)));
  return { opened, texts: tokenizer ? texts.map((text) => thrown(() => tokenizer.segment(text))) : [] };
});
console.log(JSON.stringify(found));

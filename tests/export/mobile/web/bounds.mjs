// node bounds.mjs REQUEST: what the module's tokenizer makes of files by strangers, as JSON on standard output.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const request = JSON.parse(readFileSync(process.argv[2], "utf8"));
const { Tokenizer } = await import(pathToFileURL(request.module));

// What was thrown, "" for nothing.
async function thrown(call) {
  try {
    await call();
    return "";
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
}

const found = [];
for (const file of request.files) {
  let tokenizer = null;
  const open = async () => (tokenizer = await Tokenizer.open(new Uint8Array(readFileSync(file)), "tokenizer", request.manifest));
  const opened = await thrown(open), texts = [];
  for (const text of tokenizer ? request.texts : []) texts.push(await thrown(() => tokenizer.ids(text, Infinity)));
  found.push({ opened, texts });
}
console.log(JSON.stringify(found));

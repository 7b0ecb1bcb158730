// The native core's tokenizers: SentencePiece `.model` files, and tokenizer.json files compiled at export.

import { builtin, utf8 } from "./bytes.js";
import { Core } from "./core.js";

// tokenizer.wasm, deflated, in base64: written here by the export.
const TOKENIZERS = "";

let compiled;

// Pages without the stream's name are imitations in Node.
async function inflated() {
  const { DecompressionStream } = globalThis.DecompressionStream ? globalThis : builtin("node:stream/web");
  const stream = new DecompressionStream("deflate"), writer = stream.writable.getWriter(), parts = [];
  writer.write(Uint8Array.from(atob(TOKENIZERS), (letter) => letter.charCodeAt(0))).catch(() => {}); // the reader fails too
  writer.close().catch(() => {});
  const reader = stream.readable.getReader();
  for (let part; !(part = await reader.read()).done; ) parts.push(part.value);
  const out = new Uint8Array(parts.reduce((sum, { length }) => sum + length, 0));
  parts.reduce((at, part) => (out.set(part, at), at + part.length), 0);
  return out;
}

export class Tokenizer {
  #core;
  #tokenizer;

  // Of a bundle's manifest; `bytes` are the content of `file`.
  static async open(bytes, file, { name, max_length, vocabulary, tokenizer: { kind, bos_id, eos_id } }) {
    compiled ??= inflated().then((wasm) => WebAssembly.compile(wasm));
    const core = await Core.start(await compiled, "tokenizer"), out = new Tokenizer();
    const ids = [bos_id ?? -1, eos_id ?? -1], texts = [name, file].map((text) => utf8(`${text}\0`));
    core.file(`${name}/${file}`, bytes);
    core.call("web_tokenizer", ...texts, kind === "sentencepiece", ...ids, max_length, vocabulary, core.out);
    out.#core = core;
    out.#tokenizer = core.number();
    return out;
  }

  // Ids of a text, special ids included, at most `most`.
  ids(text, most) {
    const [bytes] = this.#core.call("web_tokenize", this.#tokenizer, text, Math.min(most, 2 ** 31), this.#core.receiver, 0);
    return Array.from(new Int32Array(bytes.buffer));
  }
}

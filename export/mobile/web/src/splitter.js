// The pre-tokenizers of a compiled tokenizer.

import { Bytes, damaged, spend } from "./bytes.js";
import { appendCode, FILE, joined, MAX_RULES } from "./compiled_file.js";

const CUT = 1, METASPACE = 2, PREFIX_SPACE = 3, BYTE_LETTERS = 4;
const REMOVED = 0, ISOLATED = 1, WITH_PREVIOUS = 2, WITH_NEXT = 3;
const ALWAYS = 1, FIRST = 2;
const SPACE_BYTE = 0x20;

// The letters that stand for bytes in byte-level vocabularies (GPT-2): printable Latin-1 for itself, the rest from U+0100
// on, in order.
const LETTERS = new Uint16Array(256);
for (let byte = 0, next = 256; byte < 256; ++byte) {
  const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
  LETTERS[byte] = printable ? byte : next++;
}

const startsWith = (text, mark, at = 0) => mark.every((byte, i) => text[at + i] === byte);

export class Splitter {
  constructor(reader, file, { patterns }) {
    this.steps = reader.list(() => {
      const op = reader.next();
      if (op === CUT) {
        const pattern = patterns[reader.next()] ?? damaged(FILE), behavior = reader.next(), invert = reader.next() !== 0;
        return (text) => cut(text, pattern, behavior, invert);
      }
      if (op === METASPACE) {
        const mark = file.shortText(reader.next()), prepend = reader.next(), cuts = reader.next() !== 0;
        return (text, first) => metaspace(text, mark, prepend === ALWAYS || (prepend === FIRST && first), cuts);
      }
      if (op === PREFIX_SPACE) {
        return (text) => [text.length && text[0] !== SPACE_BYTE ? joined(Uint8Array.of(SPACE_BYTE), text) : text];
      }
      if (op !== BYTE_LETTERS) damaged(FILE);
      return (text) => {
        const out = new Bytes(2 * text.length);
        for (const byte of text) appendCode(LETTERS[byte], out);
        return [out.value()];
      };
    }, MAX_RULES);
  }

  // Pieces of a text; `first`: it begins where the whole input does.
  split(text, first) {
    let pieces = [text];
    for (const step of this.steps) {
      pieces = pieces.flatMap((piece, i) => {
        spend(1 + piece.length);
        return step(piece, first && i === 0);
      });
    }
    return pieces;
  }
}

function cut(text, pattern, behavior, invert) {
  const parts = []; // [from, to, hit]
  let at = 0;
  for (let found; at < text.length && (found = pattern.search(text, at)); [, at] = found) {
    if (found[0] > at) parts.push([at, found[0], invert]);
    parts.push([...found, !invert]);
  }
  if (at < text.length) parts.push([at, text.length, invert]);
  const pieces = [];
  let afterHit = false;
  for (const [from, to, hit] of parts) {
    if (behavior === REMOVED && hit) continue;
    const last = pieces.at(-1);
    let join = false;
    if (behavior > ISOLATED && last) {
      if (behavior === WITH_PREVIOUS) join = hit && !afterHit;
      else if (behavior === WITH_NEXT) join = !hit && afterHit; // a hit opens a piece that the next part completes
      else join = hit === afterHit;
    }
    if (join) last[1] = to;
    else pieces.push([from, to]);
    afterHit = hit;
  }
  return pieces.map(([from, to]) => text.subarray(from, to));
}

function metaspace(text, mark, prepend, cuts) {
  const out = new Bytes(2 * text.length + 16);
  // What a front mark would repeat is known only after the spaces became marks.
  if (prepend && text.length && text[0] !== SPACE_BYTE && !startsWith(text, mark)) out.append(mark);
  for (const byte of text) {
    if (byte === SPACE_BYTE) out.append(mark);
    else out.push(byte);
  }
  const marked = out.value(), pieces = [];
  if (!cuts) return [marked];
  for (let start = 0; start < marked.length; ) {
    let end = start + 1;
    while (end < marked.length && !startsWith(marked, mark, end)) ++end;
    pieces.push(marked.subarray(start, end));
    start = end;
  }
  return pieces;
}

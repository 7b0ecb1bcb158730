// tokenizer.bin: the tables of a compiled tokenizer.json. The layout is described in msdc/export/tokenizer/binary.py.

import { Bytes, damaged, EncoderError, nextCharacter, spend } from "./bytes.js";
import { MAX_PROBES, TextTable } from "./tables.js";

export const FILE = "tokenizer.bin";
export const NONE = 0xffffffff;
const VERSION = 1, REPLACE = 1, SHIFT = 2, SURROUND = 3, LAST_CODE = 0x10ffff;
const MAX_TABLES = 4096, MAX_TOKEN_BYTES = 1024, MAX_ENTRIES = 1024, MAX_REPEATS = 8;
export const MAX_RULES = 256, MAX_SPECIAL = 64;

// Unicode code point of the character in `text[at, end)`.
export function decode(text, at, end = nextCharacter(text, at)) {
  const size = end - at;
  let code = size === 1 ? text[at] : text[at] & (0xff >> (size + 1));
  for (let i = at + 1; i < end; ++i) code = (code << 6) | (text[i] & 0x3f);
  return code;
}

// Where the character that ends before `at` begins.
export function previousCharacter(text, at) {
  let start = at - 1;
  while (start > 0 && at - start < 4 && (text[start] & 0xc0) === 0x80) --start;
  return start;
}

export function appendCode(code, out) {
  if (code < 0x80) return out.push(code);
  if (code < 0x800) out.push(0xc0 | (code >> 6));
  else {
    if (code < 0x10000) out.push(0xe0 | (code >> 12));
    else {
      out.push(0xf0 | (code >> 18));
      out.push(0x80 | ((code >> 12) & 0x3f));
    }
    out.push(0x80 | ((code >> 6) & 0x3f));
  }
  out.push(0x80 | (code & 0x3f));
}

export function joined(front, text) {
  const out = new Bytes(front.length + text.length);
  out.append(front);
  out.append(text);
  return out.value();
}

export const words = (bytes) => new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length >> 2);

export class CompiledFile {
  constructor(bytes) {
    // Tables are viewed as words, which must be aligned.
    this.bytes = bytes.byteOffset % 4 ? bytes.slice() : bytes;
    this.head = words(this.bytes);
    if (String.fromCharCode(...bytes.subarray(0, 7)) !== "msdctok" || this.head[4] !== bytes.length) damaged(FILE);
    if (this.head[3] > MAX_TABLES) damaged(FILE);
    this.opened = 0;
    if (this.head[2] !== VERSION) throw new EncoderError(`${FILE}: version ${this.head[2]}, not ${VERSION}`);
  }

  table(index) {
    const from = this.head[5 + 2 * index], size = this.head[6 + 2 * index];
    if (index >= this.head[3] || from % 4 || from + size > this.bytes.length) damaged(FILE);
    // Opening a table may cost its size: a large one named a thousand times is refused.
    if ((this.opened += size) > MAX_REPEATS * this.bytes.length) damaged(FILE);
    return this.bytes.subarray(from, from + size);
  }

  shortText(index) {
    const text = this.table(index);
    return text.length <= MAX_TOKEN_BYTES ? text : damaged(FILE);
  }
}

// Reads the words of the first table in order.
export class WordReader {
  constructor(file) {
    this.words = words(file.table(0));
    this.at = 0;
  }

  next() {
    if (this.at >= this.words.length) damaged(FILE);
    return this.words[this.at++];
  }

  list(read, most = MAX_ENTRIES) {
    const count = this.next();
    if (count > Math.min(most, this.words.length)) damaged(FILE);
    return Array.from({ length: count }, read);
  }
}

export function textTable(blob) {
  const head = words(blob), count = head[0], slots = head[4];
  const offsets = head.subarray(5 + slots, 6 + slots + count);
  const lengths = new Uint32Array(count);
  const bytes = blob.subarray(4 * (6 + slots + count));
  if (offsets.length !== count + 1) damaged(FILE);
  for (let i = 0; i < count; ++i) {
    lengths[i] = offsets[i + 1] - offsets[i];
    if (lengths[i] > MAX_TOKEN_BYTES || offsets[i + 1] > bytes.length) damaged(FILE);
  }
  return new TextTable(bytes, offsets.subarray(0, count), lengths);
}

// Pairs of numbers to two numbers: merges of BPE, compositions of characters.
export class PairTable {
  constructor(blob) {
    this.records = words(blob).subarray(2);
    let slots = 4;
    while (slots < this.records.length / 2) slots *= 2;
    this.slots = new Int32Array(slots);
    for (let at = 0; at + 3 < this.records.length; at += 4) {
      if (this.records[at] === NONE) continue;
      let slot = this.home(this.records[at], this.records[at + 1]);
      for (let probes = 0; this.slots[slot]; slot = (slot + 1) & (slots - 1)) if (++probes > MAX_PROBES) damaged(FILE);
      this.slots[slot] = at + 1;
    }
  }

  home(left, right) {
    const hash = Math.imul(left, 0x9e3779b1) + Math.imul(right, 0x85ebca77);
    return (hash ^ (hash >>> 15)) & (this.slots.length - 1);
  }

  // Place of the pair's two numbers in `records`, 0 where it has none.
  find(left, right) {
    let slot = this.home(left, right);
    for (let probes = 0; this.slots[slot] && probes <= MAX_PROBES; ++probes, slot = (slot + 1) & (this.slots.length - 1)) {
      spend(1);
      const at = this.slots[slot] - 1;
      if (this.records[at] === left && this.records[at + 1] === right) return at + 2;
    }
    return 0;
  }
}

// Place of the record of `step` words whose range [start, end) holds `code`, -1 for none.
function recordOf(records, step, code) {
  let low = 0, high = Math.floor(records.length / step);
  while (low < high) {
    const middle = (low + high) >> 1;
    if (records[middle * step] <= code) low = middle + 1;
    else high = middle;
  }
  const at = (low - 1) * step;
  return low === 0 || records[at + 1] <= code ? -1 : at;
}

export class CharacterSet {
  constructor(blob) {
    this.ranges = words(blob);
    this.ascii = Uint8Array.from({ length: 128 }, (_, code) => Number(recordOf(this.ranges, 2, code) >= 0));
  }

  has(code) {
    return code < 128 ? this.ascii[code] === 1 : recordOf(this.ranges, 2, code) >= 0;
  }
}

// What becomes of single code points.
export class CharacterMap {
  constructor(blob) {
    const size = 4 * words(blob)[0];
    this.entries = words(blob).subarray(1, 1 + size);
    this.pool = blob.subarray(4 * (1 + size));
  }

  // The number of a code point, 0 where it has none.
  number(code) {
    const at = recordOf(this.entries, 4, code);
    return at < 0 ? 0 : this.entries[at + 3];
  }

  // Append what the character `text[from, to)` becomes.
  apply(text, from, to, out) {
    spend(1);
    const code = decode(text, from, to), at = recordOf(this.entries, 4, code);
    if (at < 0) return out.append(text, from, to);
    const action = this.entries[at + 2], value = this.entries[at + 3];
    const start = value >>> 8, end = start + (value & 0xff);
    if (action === REPLACE) out.append(this.pool, start, end);
    else if (action === SHIFT) {
      const moved = (code + value) >>> 0;
      appendCode(moved <= LAST_CODE ? moved : damaged(FILE), out);
    }
    else if (action === SURROUND) {
      out.append(this.pool, start, end);
      out.append(text, from, to);
      out.append(this.pool, start, end);
    } else damaged(FILE);
  }
}

// Lookups that both kinds of tokenizers need.

import { damaged, spend } from "./bytes.js";

export const SEED = 0x811c9dc5;
export const NOTHING = new Uint8Array(0);

export const addByte = (hash, byte) => Math.imul(hash ^ byte, 0x01000193);

export function addBytes(hash, bytes, from = 0, to = bytes.length) {
  for (let i = from; i < to; ++i) hash = addByte(hash, bytes[i]);
  return hash;
}

// FNV's low bits are weak on short texts.
function spread(hash) {
  hash = Math.imul(hash ^ (hash >>> 15), 0x2c1b3c6d);
  return hash ^ (hash >>> 13);
}

// Slots of a table are twice its entries: random hashes stay under fifty probes; more is a file made to collide.
export const MAX_PROBES = 256;

// Texts by their bytes: `bytes` holds all of them, text i at `starts[i]`, `lengths[i]` bytes long, 0 for none.
export class TextTable {
  constructor(bytes, starts, lengths) {
    this.bytes = bytes;
    this.starts = starts;
    this.lengths = lengths;
    this.longest = 0;
    let slots = 4;
    while (slots < 2 * starts.length) slots *= 2;
    this.slots = new Int32Array(slots);
    this.mask = slots - 1;
    for (let i = 0; i < starts.length; ++i) {
      const size = lengths[i], from = starts[i];
      if (size === 0) continue;
      this.longest = Math.max(this.longest, size);
      let slot = spread(addBytes(SEED, bytes, from, from + size)) & this.mask;
      for (let probes = 0, other; (other = this.slots[slot]); slot = (slot + 1) & this.mask) {
        if (++probes > MAX_PROBES || (lengths[other - 1] === size && this.equal(other - 1, bytes, from, from + size))) {
          damaged("the tokenizer");
        }
      }
      this.slots[slot] = i + 1;
    }
  }

  // Is text `index`, from its byte `skip` on, `text[from, to)`?
  equal(index, text, from, to, skip = 0) {
    const start = this.starts[index] + skip - from;
    while (from < to && this.bytes[start + from] === text[from]) ++from;
    return from === to;
  }

  // Index of `head` + `text[from, to)`, whose hash is given; -1 where there is none.
  findHashed(hash, text, from, to, head = NOTHING) {
    const size = to - from + head.length;
    let slot = spread(hash) & this.mask;
    for (let probes = 0; probes <= MAX_PROBES; ++probes) {
      spend(1);
      const index = this.slots[slot] - 1;
      if (index < 0) break;
      slot = (slot + 1) & this.mask;
      if (this.lengths[index] !== size) continue;
      spend(size / 16);
      if (this.equal(index, head, 0, head.length) && this.equal(index, text, from, to, head.length)) return index;
    }
    return -1;
  }

  find(text, from = 0, to = text.length) {
    if (to - from > this.longest) return -1;
    spend((to - from) / 4);
    return this.findHashed(addBytes(SEED, text, from, to), text, from, to);
  }
}

// A queue whose first entry is the one that `before(a, b)` puts before all others.
export class Queue {
  constructor(before) {
    this.before = before;
    this.heap = [];
  }

  push(entry) {
    const heap = this.heap;
    let at = heap.length;
    for (let up; at > 0 && this.before(entry, heap[(up = (at - 1) >> 1)]); at = up) heap[at] = heap[up];
    heap[at] = entry;
  }

  pop() {
    const heap = this.heap, first = heap[0], entry = heap.pop();
    if (heap.length === 0) return first;
    let at = 0;
    for (let down = 1; down < heap.length; down = 2 * at + 1) {
      if (down + 1 < heap.length && this.before(heap[down + 1], heap[down])) ++down;
      if (!this.before(heap[down], entry)) break;
      heap[at] = heap[down];
      at = down;
    }
    heap[at] = entry;
    return first;
  }
}

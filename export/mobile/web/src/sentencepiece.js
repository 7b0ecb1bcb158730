// SentencePiece `.model` files: unigram and BPE, with the ids of SentencePiece's own library.

import { allow, Bytes, damaged, EncoderError, nextCharacter, spend, utf8 } from "./bytes.js";
import { addByte, Queue, SEED, TextTable } from "./tables.js";

const NORMAL = 1, UNKNOWN = 2, USER_DEFINED = 4, UNUSED = 5, BYTE = 6; // 3: a control piece
const UNIGRAM = 1, BPE = 2;
const SPACE = utf8("\u2581"), BLANK = 0x20, REPLACEMENT = utf8("\ufffd");
const MAX_MATCHES = 32; // rules that SentencePiece keeps for one position
const MAX_PIECES = 2 ** 20, MAX_CHARACTERS = 7999, MAX_PIECE_FIELDS = 16, MAX_OTHER_FIELDS = 64;
const float = Math.fround;

const broken = () => damaged("the SentencePiece model");

// Calls `visit(number, wire, value, end)` for each field of `bytes[at, end)`; a field of bytes is [value, end).
function protobuf(bytes, at, end, visit) {
  const varint = () => {
    for (let value = 0, unit = 1; at < end && unit < 2 ** 64; unit *= 128) {
      const byte = bytes[at++];
      value += (byte & 127) * unit;
      if (byte < 128) return value;
    }
    return broken();
  };
  while (at < end) {
    const tag = varint(), wire = tag % 8;
    let value = 0, stop = at;
    if (wire === 0) value = varint();
    else {
      const size = wire === 1 ? 8 : wire === 5 ? 4 : wire === 2 ? varint() : broken();
      value = at;
      stop = at += size;
      if (at > end) broken();
    }
    visit(Math.floor(tag / 8), wire, value, stop);
  }
}

// Bytes of the well-formed character at `at`, 0 where there is none.
function validCharacter(text, at) {
  const lead = text[at];
  const trail = (i) => (text[at + i] & 0xc0) === 0x80;
  if (lead < 0x80) return 1;
  if (lead < 0xe0) return lead >= 0xc2 && trail(1) ? 2 : 0;
  const second = text[at + 1];
  if (lead < 0xf0) {
    const inRange = lead === 0xe0 ? second >= 0xa0 : lead !== 0xed || second < 0xa0;
    return trail(1) && trail(2) && inRange ? 3 : 0;
  }
  const inRange = lead === 0xf0 ? second >= 0x90 : lead < 0xf4 || (lead === 0xf4 && second < 0x90);
  return trail(1) && trail(2) && trail(3) && inRange ? 4 : 0;
}

class PieceTokenizer {
  constructor(file) {
    this.kind = UNIGRAM;
    this.spec = { prefix: true, squeeze: true, escape: true };
    this.unknown = -1;
    this.byteIds = new Int32Array(256).fill(-1);
    const starts = [], lengths = [], scores = [], types = [];
    let charsmap = null, others = 0;
    this.longestOwn = 0; // bytes of the longest user-defined piece
    const view = new DataView(file.buffer, file.byteOffset);
    const piece = (from, to) => {
      let start = 0, length = 0, score = 0, type = NORMAL, fields = 0;
      protobuf(file, from, to, (number, wire, value, end) => {
        if (++fields > MAX_PIECE_FIELDS) broken();
        if (number === 1 && wire === 2) [start, length] = [value, end - value];
        else if (number === 2 && wire === 5) score = view.getFloat32(value, true);
        else if (number === 3 && wire === 0) type = value;
      });
      const id = starts.length, text = file.subarray(start, start + length);
      let characters = 0;
      for (let at = 0, size; at < length; at += size, ++characters) size = validCharacter(text, at) || broken();
      const fits = characters > 0 && characters <= MAX_CHARACTERS && Number.isFinite(score) && type >= NORMAL && type <= BYTE;
      if (!fits || id === MAX_PIECES || (type === UNKNOWN && this.unknown >= 0)) broken();
      if (type === UNKNOWN) this.unknown = id;
      if (type === BYTE) {
        const [, byte] = /^<0x([0-9A-F]{2})>$/.exec(String.fromCharCode(...text)) ?? broken();
        this.byteIds[Number.parseInt(byte, 16)] = id;
      }
      if (type === USER_DEFINED) this.longestOwn = Math.max(this.longestOwn, length);
      const found = type === NORMAL || type === USER_DEFINED || type === UNUSED;
      starts.push(start);
      lengths.push(found ? length : 0);
      scores.push(score);
      types.push(type);
    };
    protobuf(file, 0, file.length, (number, wire, value, end) => {
      if (number === 1 && wire === 2) return piece(value, end);
      if (++others > MAX_OTHER_FIELDS) broken();
      if (wire !== 2) return;
      if (number === 2) {
        protobuf(file, value, end, (inner, kind, setting) => {
          if (kind !== 0) return;
          if (inner === 3) this.kind = setting;
          if (inner === 24) this.asSuffix = setting !== 0;
          if (inner === 35) this.byteFallback = setting !== 0;
        });
      }
      if (number === 3) {
        protobuf(file, value, end, (inner, kind, setting, stop) => {
          if (inner === 2 && kind === 2 && stop > setting) charsmap = [setting, stop];
          if (kind !== 0) return;
          if (inner === 3) this.spec.prefix = setting !== 0;
          if (inner === 4) this.spec.squeeze = setting !== 0;
          if (inner === 5) this.spec.escape = setting !== 0;
        });
      }
    });
    if (this.kind !== UNIGRAM && this.kind !== BPE) {
      throw new EncoderError("a SentencePiece word or character model, which this module does not read");
    }
    if (this.unknown < 0 || (this.byteFallback && this.byteIds.includes(-1))) broken();
    this.size = starts.length;
    this.scores = Float32Array.from(scores);
    this.types = Uint8Array.from(types);
    this.table = new TextTable(file, Uint32Array.from(starts), Uint32Array.from(lengths));
    const normal = this.scores.filter((_, id) => types[id] === NORMAL);
    this.unknownScore = float(normal.reduce((a, b) => Math.min(a, b), Infinity) - 10);
    // SentencePiece begins at the smallest positive number, not at the lowest.
    this.maxScore = normal.reduce((a, b) => Math.max(a, b), 2 ** -126);
    this.trie = new Uint32Array(0);
    if (charsmap) {
      const [from, to] = charsmap;
      const trieBytes = to - from > 4 ? view.getUint32(from, true) : 0;
      if (!trieBytes || trieBytes % 1024 || trieBytes >= to - from - 4 || file[to - 1] !== 0) broken();
      this.trie = new Uint32Array(file.slice(from + 4, from + 4 + trieBytes).buffer);
      this.replacements = file.subarray(from + 4 + trieBytes, to);
    }
  }

  // Bytes of the longest user-defined piece at `at`, 0 for none.
  userDefined(text, at) {
    let longest = 0;
    const most = Math.min(text.length, at + this.longestOwn);
    for (let end = at, hash = SEED; end < most; ) {
      hash = addByte(hash, text[end++]);
      const id = this.table.findHashed(hash, text, at, end);
      if (id >= 0 && this.types[id] === USER_DEFINED) longest = end - at;
    }
    return longest;
  }

  // One step of the character map at `at`: `out[from, to)` replaces `consumed` bytes.
  step(text, at) {
    const own = this.userDefined(text, at);
    if (own) return { out: text, from: at, to: at + own, consumed: own };
    const { trie } = this;
    const unit = (index) => trie[index] ?? 0; // a damaged trie may point anywhere
    const offset = (word) => (word >>> 10) << ((word & 512) >>> 6);
    let longest = 0, value = 0;
    if (trie.length) {
      // Darts-clone: bits 0-7 label, 8 has a leaf, 9 a wide offset, 10-30 offset, 31 set in a leaf, whose value is the rest.
      let node = offset(trie[0]);
      for (let i = at, matches = 0; i < text.length && matches < MAX_MATCHES; ++i) {
        spend(1);
        node ^= text[i];
        const word = unit(node);
        if ((word & 0x800000ff) !== text[i]) break;
        node ^= offset(word);
        if (word & 256) {
          longest = i + 1 - at;
          value = unit(node) & 0x7fffffff;
          ++matches;
        }
      }
    }
    if (longest && value < this.replacements.length) {
      const to = this.replacements.indexOf(0, value);
      spend(to - value);
      return { out: this.replacements, from: value, to, consumed: longest };
    }
    const size = validCharacter(text, at);
    if (size === 0) return { out: REPLACEMENT, from: 0, to: REPLACEMENT.length, consumed: 1 };
    return { out: text, from: at, to: at + size, consumed: size };
  }

  normalize(text) {
    const { prefix, squeeze, escape } = this.spec;
    let at = 0;
    while (squeeze && at < text.length) {
      const first = this.step(text, at);
      if (first.to - first.from !== 1 || first.out[first.from] !== BLANK) break;
      at += first.consumed;
    }
    const out = new Bytes(2 * text.length + 16);
    if (at >= text.length) return out.value();
    const space = escape ? SPACE : Uint8Array.of(BLANK);
    if (prefix && !this.asSuffix) out.append(space);
    let afterSpace = squeeze;
    while (at < text.length) {
      const now = this.step(text, at);
      let { from } = now;
      while (afterSpace && from < now.to && now.out[from] === BLANK) ++from;
      if (from < now.to) {
        for (let i = from; i < now.to; ++i) {
          if (now.out[i] === BLANK) out.append(space);
          else out.push(now.out[i]);
        }
        afterSpace = now.out[now.to - 1] === BLANK;
      }
      at += now.consumed;
      if (!squeeze) afterSpace = false;
    }
    const endsInSpace = () =>
      out.length >= space.length && space.every((byte, i) => out.data[out.length - space.length + i] === byte);
    while (squeeze && endsInSpace()) out.length -= space.length;
    if (prefix && this.asSuffix) out.append(space);
    return out.value();
  }

  // Ids of a text (UTF-8), without special ids.
  segment(text) {
    allow(text);
    const normal = this.normalize(text);
    return this.kind === UNIGRAM ? this.unigram(normal) : this.bpe(normal);
  }

  // The best path of a unigram model (Kudo 2018) in one pass. Scores are added in float32, as SentencePiece does: rounding
  // decides which of two equal paths wins.
  unigram(text) {
    const { table, types, scores } = this;
    const size = text.length;
    const best = new Float32Array(size + 1), ids = new Int32Array(size + 1), starts = new Int32Array(size + 1).fill(-1);
    const offer = (start, end, id, score) => {
      if (starts[end] >= 0 && !(score > best[end])) return;
      best[end] = score;
      ids[end] = id;
      starts[end] = start;
    };
    for (let start = 0; start < size; ) {
      const soFar = best[start], first = nextCharacter(text, start);
      const limit = Math.min(size, start + table.longest);
      let hasSingle = false;
      for (let end = start, hash = SEED; end < limit; ) {
        const stop = nextCharacter(text, end);
        while (end < stop) hash = addByte(hash, text[end++]);
        const id = table.findHashed(hash, text, start, end);
        if (id < 0 || types[id] === UNUSED) continue;
        const own = types[id] === USER_DEFINED ? float(float((end - start) * this.maxScore) - 0.1) : scores[id];
        offer(start, end, id, float(own + soFar));
        hasSingle ||= end === first;
      }
      if (!hasSingle) offer(start, first, this.unknown, float(this.unknownScore + soFar));
      start = first;
    }
    const spans = [];
    for (let end = size; end > 0; end = starts[end]) spans.push([starts[end], end, ids[end]]);
    return this.idsOf(text, spans.reverse());
  }

  // Byte pair encoding: the neighbours of highest score merge first, the left ones at a tie.
  bpe(text) {
    const { table, types, scores } = this;
    const symbols = [];
    const splits = new Map(); // unused pieces may arise on the way to longer ones; one that is left over falls apart again
    for (let at = 0; at < text.length; ) {
      const frozen = this.userDefined(text, at);
      const end = frozen ? at + frozen : nextCharacter(text, at);
      symbols.push({ start: at, bytes: end - at, before: symbols.length - 1, after: symbols.length + 1, frozen: !!frozen });
      at = end;
    }
    if (!symbols.length) return [];
    symbols.at(-1).after = -1;
    const queue = new Queue((a, b) => a.score > b.score || (a.score === b.score && a.left < b.left));
    const offer = (left, right) => {
      if (left < 0 || right < 0 || symbols[left].frozen || symbols[right].frozen) return;
      const { start } = symbols[left], bytes = symbols[left].bytes + symbols[right].bytes;
      const id = table.find(text, start, start + bytes);
      if (id < 0) return;
      queue.push({ score: scores[id], left, right, bytes });
      if (types[id] === UNUSED) splits.set(id, symbols[left].bytes);
    };
    for (let i = 1; i < symbols.length; ++i) offer(i - 1, i);
    while (queue.heap.length) {
      const top = queue.pop(), left = symbols[top.left], right = symbols[top.right];
      // One of the two has changed since this merge was offered.
      if (!left.bytes || !right.bytes || left.bytes + right.bytes !== top.bytes) continue;
      left.bytes = top.bytes;
      left.after = right.after;
      if (right.after >= 0) symbols[right.after].before = top.left;
      right.bytes = 0;
      offer(left.before, top.left);
      offer(top.left, left.after);
    }
    const spans = [];
    for (let index = 0; index >= 0; index = symbols[index].after) {
      const pending = [[symbols[index].start, symbols[index].bytes]];
      while (pending.length) {
        const [start, bytes] = pending.pop();
        const id = table.find(text, start, start + bytes);
        const split = id >= 0 && types[id] === UNUSED ? splits.get(id) : undefined;
        if (split === undefined) spans.push([start, start + bytes, id < 0 ? this.unknown : id]);
        else pending.push([start + split, bytes - split], [start, split]);
      }
    }
    return this.idsOf(text, spans);
  }

  // Neighbouring unknowns are one unknown; with byte fallback each is its bytes.
  idsOf(text, spans) {
    const out = [];
    let afterUnknown = false;
    for (const [start, end, id] of spans) {
      const unknown = id === this.unknown;
      if (unknown && this.byteFallback) for (let i = start; i < end; ++i) out.push(this.byteIds[text[i]]);
      else if (!unknown || !afterUnknown) out.push(id);
      afterUnknown = unknown;
    }
    return out;
  }
}

export const TOKENIZER_KIND = "sentencepiece";

// The tokenizer of a bundle: `segment` gives the ids between `before` and `after`.
export function openTokenizer(file, part) {
  const tokenizer = new PieceTokenizer(file);
  tokenizer.before = [part.bos_id];
  tokenizer.after = [part.eos_id];
  return tokenizer;
}

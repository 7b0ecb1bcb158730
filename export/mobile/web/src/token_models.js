// The models of a compiled tokenizer: WordPiece, BPE and unigram, as Hugging Face's `tokenizers` segments.

import { damaged, EncoderError, nextCharacter, spend, utf8 } from "./bytes.js";
import { FILE, NONE, PairTable } from "./compiled_file.js";
import { addByte, addBytes, NOTHING, Queue, SEED } from "./tables.js";

const WORD_PIECE_MODEL = 1, BPE_MODEL = 2, UNIGRAM_MODEL = 3;

// Ids of "<0x00>" to "<0xFF>", -1 where there is none or bytes are not used.
function byteIds(vocabulary, used) {
  const name = (byte) => utf8(`<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`);
  return Int32Array.from({ length: 256 }, (_, byte) => (used ? vocabulary.find(name(byte)) : -1));
}

// Append the ids of the bytes of `part`; false, and nothing, where one has none.
function appendBytes(known, part, ids) {
  if (part.some((byte) => known[byte] < 0)) return false;
  for (const byte of part) ids.push(known[byte]);
  return true;
}

// A function that appends the ids of one piece.
export function readModel(reader, file, vocabulary) {
  const kind = reader.next();
  const idOrNone = () => {
    const id = reader.next();
    return id === NONE ? -1 : id < vocabulary.lengths.length ? id : damaged(FILE);
  };
  if (kind === WORD_PIECE_MODEL) {
    const unknown = idOrNone(), most = reader.next(), prefix = file.shortText(reader.next());
    return (piece, ids) => wordPiece(vocabulary, unknown, most, prefix, piece, ids);
  }
  if (kind === BPE_MODEL) {
    const merges = new PairTable(file.table(reader.next())), unknown = idOrNone(), flags = reader.next();
    const known = byteIds(vocabulary, (flags & 4) !== 0);
    const model = { vocabulary, merges, unknown, known, fuses: (flags & 1) !== 0, whole: (flags & 2) !== 0 };
    model.prefix = file.shortText(reader.next());
    model.suffix = file.shortText(reader.next());
    return (piece, ids) => bytePairs(model, piece, ids);
  }
  if (kind !== UNIGRAM_MODEL) damaged(FILE);
  const scores = new Float64Array(file.table(reader.next()).slice().buffer), unknown = idOrNone();
  const known = byteIds(vocabulary, reader.next() !== 0);
  const unknownScore = new Float64Array(Uint32Array.of(reader.next(), reader.next()).buffer)[0];
  return (piece, ids) => bestPath({ vocabulary, scores, unknown, known, unknownScore }, piece, ids);
}

function wordPiece(vocabulary, unknown, most, prefix, piece, ids) {
  const before = ids.length;
  let characters = 0;
  for (const byte of piece) characters += (byte & 0xc0) !== 0x80;
  for (let start = 0; start < piece.length; ) {
    const head = start === 0 ? NOTHING : prefix;
    const limit = Math.min(piece.length, start + vocabulary.longest - head.length);
    let best = -1, bestEnd = start;
    for (let end = start, hash = addBytes(SEED, head); end < limit && characters <= most; ) {
      const stop = nextCharacter(piece, end);
      while (end < stop) hash = addByte(hash, piece[end++]);
      const id = vocabulary.findHashed(hash, piece, start, end, head);
      if (id >= 0) [best, bestEnd] = [id, end];
    }
    if (best < 0) {
      // One part that is not known makes the whole word unknown.
      ids.length = before;
      ids.push(unknown);
      return;
    }
    ids.push(best);
    start = bestEnd;
  }
}

function bytePairs(model, piece, ids) {
  const { vocabulary, merges } = model;
  const whole = model.whole ? vocabulary.find(piece) : -1;
  if (whole >= 0) return ids.push(whole);
  const start = firstSymbols(model, piece);
  const count = start.length;
  const before = Int32Array.from(start, (_, i) => i - 1), after = Int32Array.from(start, (_, i) => i + 1);
  const gone = new Uint8Array(count);
  const queue = new Queue((a, b) => a.rank < b.rank || (a.rank === b.rank && a.left < b.left));
  const pair = (left) => (after[left] < count ? merges.find(start[left], start[after[left]]) : 0);
  const offer = (left) => {
    const at = pair(left);
    if (at) queue.push({ rank: merges.records[at], left, result: merges.records[at + 1] });
  };
  for (let i = 0; i + 1 < count; ++i) offer(i);
  // The merge of lowest rank first, the left one at a tie.
  while (queue.heap.length) {
    const { left, result } = queue.pop(), at = gone[left] ? 0 : pair(left);
    // The pair may have changed since this merge was offered.
    if (!at || merges.records[at + 1] !== result) continue;
    const right = after[left];
    start[left] = result;
    after[left] = after[right];
    gone[right] = 1;
    if (after[left] < count) before[after[left]] = left;
    if (before[left] >= 0) offer(before[left]);
    offer(left);
  }
  start.forEach((id, i) => gone[i] || ids.push(id));
}

// Ids of the single characters, with the prefix of all but the first and the suffix of the last.
function firstSymbols({ vocabulary, unknown, known, fuses, prefix, suffix }, piece) {
  const out = [];
  let pending = false; // an unknown that the next one may join
  for (let at = 0; at < piece.length; ) {
    const end = nextCharacter(piece, at), first = at === 0, last = end === piece.length;
    let part = piece.subarray(at, end);
    if ((!first && prefix.length) || (last && suffix.length)) {
      spend((prefix.length + suffix.length) / 16);
      part = Uint8Array.of(...(first ? NOTHING : prefix), ...part, ...(last ? suffix : NOTHING));
    }
    at = end;
    const id = vocabulary.find(part);
    if (id >= 0) {
      if (pending) out.push(unknown);
      pending = false;
      out.push(id);
    } else if (!appendBytes(known, part, out) && unknown >= 0) {
      if (pending && !fuses) out.push(unknown);
      pending = true;
    }
  }
  if (pending) out.push(unknown);
  return out;
}

function bestPath({ vocabulary, scores, unknown, known, unknownScore }, piece, ids) {
  const size = piece.length;
  const best = new Float64Array(size + 1), found = new Int32Array(size + 1), starts = new Int32Array(size + 1).fill(-1);
  const offer = (start, end, id, score) => {
    if (starts[end] >= 0 && !(score > best[end])) return;
    best[end] = score;
    found[end] = id;
    starts[end] = start;
  };
  for (let start = 0; start < size; ) {
    const first = nextCharacter(piece, start), limit = Math.min(size, start + vocabulary.longest);
    let hasSingle = false;
    for (let end = start, hash = SEED; end < limit; ) {
      const stop = nextCharacter(piece, end);
      while (end < stop) hash = addByte(hash, piece[end++]);
      const id = vocabulary.findHashed(hash, piece, start, end);
      if (id < 0) continue;
      offer(start, end, id, scores[id] + best[start]);
      hasSingle ||= end === first;
    }
    if (!hasSingle) {
      if (unknown < 0) throw new EncoderError("a character that the tokenizer has no piece for");
      offer(start, first, unknown, unknownScore + best[start]);
    }
    start = first;
  }
  const spans = []; // adjacent unknowns are one
  for (let end = size, afterUnknown = false; end > 0; end = starts[end]) {
    const isUnknown = found[end] === unknown;
    if (isUnknown && afterUnknown) spans.at(-1)[0] = starts[end];
    else spans.push([starts[end], end]);
    afterUnknown = isUnknown;
  }
  for (const [from, to] of spans.reverse()) {
    const id = vocabulary.find(piece, from, to);
    if (id >= 0) ids.push(id);
    else if (!appendBytes(known, piece.subarray(from, to), ids)) ids.push(unknown);
  }
}

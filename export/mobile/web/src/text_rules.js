// The normalizers of a compiled tokenizer, as Hugging Face's `tokenizers` applies them.

import { Bytes, damaged, nextCharacter, spend } from "./bytes.js";
import { appendCode, decode, FILE, joined, MAX_RULES, NONE, PairTable, previousCharacter, words } from "./compiled_file.js";

const MAP = 1, FORM = 2, LITERAL = 3, PATTERN = 4, PREPEND = 5, STRIP = 6, CLUSTERS = 7;
const CLUSTER_BYTES = 6; // clusters from here on are mapped character by character
const JOINER = 0x200d, CARRIAGE_RETURN = 13, LINE_FEED = 10;
// Hangul syllables are composed by arithmetic (Unicode 3.12).
const SYLLABLES = 0xac00, SYLLABLE_COUNT = 11172, LEAD = 0x1100, LEADS = 19, VOWEL = 0x1161, VOWELS = 21;
const TAIL = 0x11a7, TAILS = 28;

const within = (number, count) => number >= 0 && number < count;

function composeHangul(left, right) {
  if (within(left - LEAD, LEADS) && within(right - VOWEL, VOWELS)) {
    return SYLLABLES + ((left - LEAD) * VOWELS + right - VOWEL) * TAILS;
  }
  const open = within(left - SYLLABLES, SYLLABLE_COUNT) && (left - SYLLABLES) % TAILS === 0;
  return open && within(right - TAIL - 1, TAILS - 1) ? left + right - TAIL : 0;
}

// SentencePiece's character map as `tokenizers` applies it: to whole grapheme clusters under six bytes, else to single
// characters; the shortest matching rule wins and replaces all of what was looked up.
class ClusterMap {
  constructor(blob) {
    const bytes = words(blob)[0];
    if (bytes % 4 || bytes > blob.length - 4) damaged(FILE);
    this.trie = words(blob.subarray(4, 4 + bytes));
    this.replacements = blob.subarray(4 + bytes);
  }

  // Append what `text[from, to)` becomes; false where no rule matches.
  apply(text, from, to, out) {
    const offset = (word) => (word >>> 10) << ((word & 512) >>> 6);
    const unit = (index) => this.trie[index] ?? 0;
    let node = offset(unit(0));
    for (let i = from; i < to; ++i) {
      if (text[i] === 0) return false;
      node ^= text[i];
      const word = unit(node);
      if ((word & 0x800000ff) !== text[i]) return false;
      node ^= offset(word);
      if (word & 256) {
        const value = unit(node) & 0x7fffffff;
        if (value >= this.replacements.length) return false;
        const end = this.replacements.indexOf(0, value);
        out.append(this.replacements, value, end < 0 ? this.replacements.length : end);
        return true;
      }
    }
    return false;
  }
}

export class TextRules {
  constructor(reader, file, tables) {
    const { sets, maps, patterns } = tables;
    const one = (list) => list[reader.next()] ?? damaged(FILE);
    const table = () => file.table(reader.next()), short = () => file.shortText(reader.next());
    this.rules = reader.list(() => {
      const op = reader.next();
      if (op === MAP) {
        const map = one(maps);
        return (text) => eachCharacter(text, (from, to, out) => map.apply(text, from, to, out));
      }
      if (op === FORM) {
        const map = one(maps), classes = one(maps), pairs = reader.next();
        const composed = pairs === NONE ? null : new PairTable(file.table(pairs));
        return (text) => form(text, map, classes, composed);
      }
      if (op === LITERAL) {
        const from = short(), to = short();
        if (!from.length) damaged(FILE);
        return (text) => replaceLiteral(text, from, to);
      }
      if (op === PATTERN) {
        const pattern = one(patterns), to = short();
        return (text) => replacePattern(text, pattern, to);
      }
      if (op === PREPEND) {
        const front = short();
        return (text) => (text.length ? joined(front, text) : text);
      }
      if (op === STRIP) {
        const space = one(sets), sides = reader.next();
        return (text) => strip(text, space, sides);
      }
      if (op === CLUSTERS) {
        const map = new ClusterMap(table());
        const [before, after, breaks, pictures] = [one(sets), one(sets), one(sets), one(sets)];
        return (text) => clusters(text, map, before, after, breaks, pictures);
      }
      return damaged(FILE);
    }, MAX_RULES);
  }

  apply(text) {
    for (const rule of this.rules) {
      spend(1 + text.length);
      text = rule(text);
    }
    return text;
  }
}

function eachCharacter(text, visit) {
  const out = new Bytes(text.length + 16);
  for (let at = 0; at < text.length; ) {
    const end = nextCharacter(text, at);
    visit(at, end, out);
    at = end;
  }
  return out.value();
}

function replaceLiteral(text, from, to) {
  const out = new Bytes(text.length + 16);
  for (let at = 0; at < text.length; ) {
    spend(from.length / 16);
    if (from.every((byte, i) => text[at + i] === byte)) {
      out.append(to);
      at += from.length;
    } else out.push(text[at++]);
  }
  return out.value();
}

function replacePattern(text, pattern, to) {
  const out = new Bytes(text.length + 16);
  let at = 0;
  for (let found; at < text.length && (found = pattern.search(text, at)); [, at] = found) {
    out.append(text, at, found[0]);
    out.append(to);
  }
  out.append(text, at);
  return out.value();
}

function strip(text, space, sides) {
  let from = 0, to = text.length;
  while (sides & 1 && from < to && space.has(decode(text, from))) from = nextCharacter(text, from);
  while (sides & 2 && to > from && space.has(decode(text, previousCharacter(text, to), to))) {
    to = previousCharacter(text, to);
  }
  return text.subarray(from, Math.max(from, to));
}

// NFC, NFD, NFKC, NFKD by the file's own tables; `composed` null decomposes only.
function form(text, map, classes, composed) {
  const decomposed = eachCharacter(text, (from, to, out) => {
    const index = decode(text, from, to) - SYLLABLES;
    if (!within(index, SYLLABLE_COUNT)) return map.apply(text, from, to, out);
    appendCode(LEAD + Math.floor(index / (VOWELS * TAILS)), out);
    appendCode(VOWEL + Math.floor((index % (VOWELS * TAILS)) / TAILS), out);
    if (index % TAILS) appendCode(TAIL + (index % TAILS), out);
  });
  const out = new Bytes(decomposed.length + 16);
  const pair = (left, right) => {
    const at = composed.find(left, right);
    return at ? composed.records[at + 1] : 0;
  };
  let run = []; // a starter and the marks after it, or marks without a starter, as [code, combining class]
  // Order the marks and compose them with the starter; once per run, because a second pass could compose more.
  const settle = () => {
    const starter = run.length && run[0][1] === 0 ? run.shift() : null;
    run.sort((a, b) => a[1] - b[1]);
    if (!starter) return;
    if (!composed) return run.unshift(starter);
    const kept = [starter];
    for (const mark of run) {
      // A mark is blocked by one of the same or a higher class that stays before it.
      const free = kept.length === 1 || kept.at(-1)[1] < mark[1];
      const whole = free ? pair(starter[0], mark[0]) : 0;
      if (whole) starter[0] = whole;
      else kept.push(mark);
    }
    run = kept;
  };
  const emit = () => {
    for (const [code] of run) appendCode(code, out);
    run = [];
  };
  for (let at = 0; at < decomposed.length; ) {
    const end = nextCharacter(decomposed, at), code = decode(decomposed, at, end);
    const rank = code < 0x300 ? 0 : classes.number(code);
    at = end;
    if (rank === 0 && run.length) {
      settle();
      // Two starters without marks between them may compose too: Hangul, some vowel signs.
      if (composed && run.length === 1 && run[0][1] === 0) {
        const whole = composeHangul(run[0][0], code) || pair(run[0][0], code);
        if (whole) {
          run[0][0] = whole;
          continue;
        }
      }
      emit();
    }
    run.push([code, rank]);
  }
  settle();
  emit();
  return out.value();
}

function clusters(text, map, joinsBefore, joinsAfter, breaks, pictures) {
  const out = new Bytes(text.length + 16);
  for (let start = 0; start < text.length; ) {
    let end = nextCharacter(text, start), before = decode(text, start, end);
    // Only what decides about clusters under six bytes: flags and syllable blocks are longer.
    let picture = pictures.has(before);
    while (end < text.length) {
      const next = nextCharacter(text, end), code = decode(text, end, next);
      const lineEnd = before === CARRIAGE_RETURN && code === LINE_FEED;
      const pictured = picture && before === JOINER && pictures.has(code);
      const joined = joinsBefore.has(code) || joinsAfter.has(before) || pictured;
      if (!lineEnd && (breaks.has(before) || breaks.has(code) || !joined)) break;
      picture = pictures.has(code) || (picture && joinsBefore.has(code));
      before = code;
      end = next;
    }
    if (end - start >= CLUSTER_BYTES || !map.apply(text, start, end, out)) {
      for (let at = start; at < end; ) {
        const next = nextCharacter(text, at, end);
        if (!map.apply(text, at, next, out)) out.append(text, at, next);
        at = next;
      }
    }
    start = end;
  }
  return out.value();
}

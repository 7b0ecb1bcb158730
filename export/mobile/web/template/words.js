// The words by which a search index finds text, as msdc/search/words.py has them.

// Written by benchmarks/word_table.py, which describes the format.
const TABLE = `{table}`;
const HANGUL = /[\u1100-\u11ff\uac00-\ud7a3]+/g; // letters and syllables; this part of NFC is the same in every version
let table = null;

function* entries(line) {
  let start = 0;
  for (const entry of line.split(" ")) {
    const [gap, ...rest] = entry.split(",").map((number) => parseInt(number, 36));
    yield [start += gap, ...rest];
  }
}

function read() {
  const lines = TABLE.split("\n").slice(1), folds = new Map(), orders = new Map(), ranges = Array(6).fill("");
  const letter = String.fromCodePoint, escaped = (code) => `\\u{${code.toString(16)}}`;
  for (const [start, count, step, target] of entries(lines[0])) {
    for (let at = 0; at < count * step; at += step) folds.set(letter(start + at), target === undefined ? "" : letter(target + at));
  }
  for (const [start, ...targets] of entries(lines[1])) folds.set(letter(start), letter(...targets));
  for (const [start, order] of entries(lines[2])) orders.set(letter(start), order);
  const starts = [...entries(lines[3]), [0x110000]];
  starts.slice(1).forEach(([end], at) => (ranges[starts[at][1]] += `${escaped(starts[at][0])}-${escaped(end - 1)}`));
  const [, word, unspaced, mark, symbol, region] = ranges;
  const words = `([${unspaced}][${unspaced}${mark}]*)|[${word}][${word}${mark}]*|[${region}]{1,2}|[${symbol}]`;
  const [marks, letters] = [`[${[...orders.keys()].join("")}]{2,}`, `[${unspaced}][${mark}]*`];
  const [ordered, split, parts] = [marks, words, letters].map((source) => new RegExp(source, "gu"));
  return { folds, orders, ordered, split, parts };
}

// [word, its letters in a script without blanks] of each word.
function wordsOf(text) {
  table ??= read();
  const { folds, orders, ordered, split, parts } = table;
  let folded = "";
  for (const letter of text) folded += folds.get(letter) ?? letter;
  folded = folded.replace(HANGUL, (found) => found.normalize("NFC"));
  folded = folded.replace(ordered, (found) => Array.from(found).sort((a, b) => orders.get(a) - orders.get(b)).join(""));
  return Array.from(folded.matchAll(split), ([word, run]) => [word, run?.match(parts) ?? []]);
}

/** What an index stores of a text: its words with blanks between, of scripts without blanks pairs of letters. */
export function indexWords(text) {
  const found = wordsOf(text).flatMap(([word, letters]) => (letters.length ? letters.map((one, at) => one + (letters[at + 1] ?? "")) : [word]));
  return found.join(" ");
}

/** FTS5's expression for the words of a query, any of which may match; empty if it has none. */
export function matchExpression(query) {
  const found = wordsOf(query).flatMap(([word, letters]) => {
    if (letters.length === 1) return [`"${word}"*`];
    return letters.length ? letters.slice(1).map((one, at) => `"${letters[at]}${one}"`) : [`"${word}"`];
  });
  return [...new Set(found)].join(" OR ");
}

// The words by which a search index finds text, and the query that finds them, as msdc/search/words.py has them.

// Written by benchmarks/word_table.py, which describes the format.
const TABLE = `{table}`;
/** What separates chunks of text: the blanks of Python's str.split, which are not those of \s. */
export const SPACE = "[\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
export const IS_SPACE = new RegExp(SPACE);
const SPACES = new RegExp(`${SPACE}+`);
const HANGUL = /[\u1100-\u11ff\uac00-\ud7a3]+/g; // letters and syllables; this part of NFC is the same in every version
// Letters of scripts with blanks between words (and the marks on them), as far as other spellings are concerned.
const LETTER = "A-Za-z\\u00c0-\\u1fff";
const JOINTS = "'\u2018\u2019\u02bb\u02bc`\u00b4\u2032\uff07\u2010\u2011-";
const JOINT = new RegExp(`(?<=[${LETTER}])[${JOINTS}](?=[${LETTER}])`, "g");
const UMLAUTS = new Map(Object.entries({
  ae: "ä Ä ǟ Ǟ a\u0308 A\u0308", oe: "ö Ö ȫ Ȫ o\u0308 O\u0308 ø Ø ǿ Ǿ", aa: "å Å ǻ Ǻ a\u030a A\u030a \u212b",
  ue: "ü Ü ǖ Ǖ ǘ Ǘ ǚ Ǚ ǜ Ǜ u\u0308 U\u0308",
}).flatMap(([spelled, letters]) => letters.split(" ").map((letter) => [letter, spelled])));
const UMLAUT = new RegExp([...UMLAUTS.keys()].join("|"), "g");
const HUMP = /(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z][a-z])/g;
const SPELLED = new RegExp([UMLAUT, JOINT, HUMP].map(({ source }) => source).join("|"));
const NAME = new RegExp(`(?<![${LETTER}0-9])[A-Za-z0-9]+(?![${LETTER}0-9])`, "g");
const CODE = new RegExp(`[0-9]|[${LETTER}][._/:@+#&\\u2010\\u2011-](?=[${LETTER}])`);
const QUOTES = new Map([['"', '"'], ...Array.from("“„«”‟", (opening) => [opening, "”“»"])]); // opening, what closes it
const ANY_LETTER = "A-Za-z\\u00c0-\\u1fff\\u2c00-\\u2fff\\u3001-\\uffff"; // halves of wide characters too
const IS_LETTER = new RegExp(`[${ANY_LETTER}]`), CONTINUES = new RegExp(`[${ANY_LETTER}0-9]`);
const IS_ASCII = /^[\0-\x7f]*$/;
const TITLE_WORDS = 128, SENTENCE_WORDS = 5, PREFIX_SHARE = 0.5;
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
  return { folds, orders, ordered, split, parts, common: new Set(lines[4].split(" ")) };
}

/** The table that folds and splits text, read once. */
export function foldTable() {
  return (table ??= read());
}

/** The parts of a text between blanks. */
export const chunksOf = (text) => text.split(SPACES).filter(Boolean);

/** A folded text, with marks on a letter in the table's order. */
export function withOrderedMarks(text) {
  const { orders, ordered } = foldTable();
  return text.replace(ordered, (marks) => Array.from(marks).sort((a, b) => orders.get(a) - orders.get(b)).join(""));
}

// [word, its letters in a script without blanks] of each word.
function wordsOf(text) {
  const { folds, split, parts } = foldTable();
  let folded = "";
  for (const letter of text) folded += folds.get(letter) ?? letter;
  folded = withOrderedMarks(folded.replace(HANGUL, (run) => run.normalize("NFC")));
  return Array.from(folded.matchAll(split), ([word, run]) => [word, run?.match(parts) ?? []]);
}

const pairsOf = (letters) => letters.slice(1).map((letter, at) => letters[at] + letter);

/** The stored words of a text: of scripts without blanks its pairs of letters, and the last letter of a run alone. */
export function termsOf(text) {
  return wordsOf(text).flatMap(([word, letters]) => (letters.length ? [...pairsOf(letters), letters.at(-1)] : [word]));
}

/** Other spellings of a chunk with these terms: { umlauts, joined, parts }, as words.py describes them. */
export function spellings(chunk, terms) {
  const umlauts = chunk.replace(UMLAUT, (letter) => UMLAUTS.get(letter)), joined = chunk.replace(JOINT, "");
  const stored = new Set(terms), names = (chunk.match(NAME) ?? []).filter((name) => name.search(HUMP) >= 0);
  return {
    umlauts: umlauts === chunk ? [] : termsOf(umlauts),
    joined: joined === chunk ? [] : termsOf(joined).filter((term) => !stored.has(term)),
    parts: new Map(names.map((name) => [name.toLowerCase(), name.replace(HUMP, " ").toLowerCase()])),
  };
}

/** What an index stores of a text: its words, of scripts without blanks pairs of letters; then other spellings. */
export function indexWords(text) {
  const terms = termsOf(text), stored = new Set(terms), others = new Set();
  for (const chunk of SPELLED.test(text) ? chunksOf(text).filter((part) => SPELLED.test(part)) : []) {
    const { umlauts, joined, parts } = spellings(chunk, termsOf(chunk));
    for (const word of [...umlauts, ...joined]) if (!stored.has(word)) others.add(word);
    for (const words of parts.values()) others.add(words);
  }
  return [...terms, ...others].join(" ");
}

// --- queries ------------------------------------------------------------------------------------------------------------

// A query taken apart at its operators, quotes and a minus before a word or a quote: [text, kind], the kind "words",
// "quoted" or "without". Each closing quote is looked for once and each text without a word is read once, so that the time
// is linear.
function segmentsOf(query) {
  const segments = [], closedAt = new Map(); // by closing quotes: the next of them, or the query's end
  let start = 0, at = 0, blankEnd = 0; // from an earlier position to blankEnd is no word
  while (at < query.length) {
    const minus = query[at] === "-", first = at + minus;
    if ((at && !IS_SPACE.test(query[at - 1])) || first === query.length) {
      ++at;
      continue;
    }
    let begin = 0, contentEnd = 0, end = 0;
    const closing = QUOTES.get(query[first]);
    if (closing) {
      begin = contentEnd = first + 1;
      if ((closedAt.get(closing) ?? -1) >= begin) contentEnd = closedAt.get(closing);
      while (contentEnd < query.length && !closing.includes(query[contentEnd])) ++contentEnd;
      closedAt.set(closing, contentEnd);
      // Without a closing quote, or with a letter or digit behind it (27" or 32"), it is no operator.
      end = contentEnd === query.length || CONTINUES.test(query[contentEnd + 1] ?? "") ? 0 : contentEnd + 1;
    } else if (minus && IS_LETTER.test(query[first])) {
      begin = contentEnd = first;
      while (contentEnd < query.length && !IS_SPACE.test(query[contentEnd])) ++contentEnd;
      end = contentEnd - begin < 2 && IS_ASCII.test(query[begin]) ? 0 : contentEnd; // an option: -v
    }
    const content = end && contentEnd > blankEnd ? query.slice(begin, contentEnd) : "";
    if (content && termsOf(content).length) {
      segments.push([query.slice(start, at), "words"], [content, minus ? "without" : "quoted"]);
      start = at = end;
    } else {
      if (end) blankEnd = Math.max(blankEnd, contentEnd);
      ++at;
    }
  }
  return [...segments, [query.slice(start), "words"]];
}

const either = (expressions) => [...new Set(expressions)].join(" OR ");
// FTS5's expression for words that follow each other; `letters` are those of the last run without blanks.
const phrase = (terms, letters, prefix = false) => `"${terms.join(" ")}"${prefix || letters.length ? "*" : ""}`;

// A word or phrase of a query with its forms [expression, share], in a map by its expression.
function addForms(into, expression, prefix = null) {
  const forms = prefix ? [[expression, 1 - PREFIX_SHARE], [prefix, PREFIX_SHARE]] : [[expression, 1]];
  if (prefix || !into.has(expression)) into.set(expression, forms);
}

// The words of a chunk, and if it is a code the phrase of them; `mayGoOn`: its last word may be unfinished; `shortest`:
// letters of a word that may be a common one.
function addChunk(chunk, mayGoOn, shortest, forms, commonForms) {
  const { common } = foldTable(), words = wordsOf(chunk), terms = termsOf(chunk);
  const { umlauts, joined, parts } = spellings(chunk, terms), [lastWord, lastLetters] = words.at(-1);
  const typing = mayGoOn && !lastLetters.length && termsOf(`${chunk}a`).at(-1) === `${lastWord}a`;
  const isCode = CODE.test(chunk) && terms.length > 1 && words.every(([, letters]) => letters.length < 2);
  for (const [number, [word, letters]] of words.entries()) {
    const isLast = number === words.length - 1, size = Array.from(word).length, spelled = [];
    if (umlauts.length === words.length && words.length === terms.length) spelled.push(umlauts[number]);
    if (parts.has(word)) spelled.push(parts.get(word));
    const alsoJoined = isLast && !isCode ? [...spelled, ...joined] : spelled;
    for (const [at, pair] of [...(letters.length > 1 ? new Set(pairsOf(letters)) : [word])].entries()) {
      const quoted = [pair, ...(at ? spelled : alsoJoined)].map((term) => `"${term}"`);
      const expression = letters.length === 1 ? `"${pair}"*` : either(quoted);
      const prefix = typing && isLast && size > 1 ? either(quoted.map((term) => `${term}*`)) : null;
      addForms(size >= shortest && common.has(pair) ? commonForms : forms, expression, prefix);
    }
  }
  if (isCode) {
    const expression = either([phrase(terms, lastLetters), ...joined.map((term) => `"${term}"`)]);
    addForms(forms, expression, typing ? phrase(terms, [], true) : null);
  }
}

/** What search.sql looks for, as JSON; words.py describes it. `syntax`: "operators", or "plain" without them. */
export function parseQuery(query, syntax = "operators") {
  let segments = syntax === "operators" ? segmentsOf(query) : [[query, "words"]];
  let positive = segments.filter(([, kind]) => kind !== "without");
  if (!positive.some(([text]) => termsOf(text).length)) segments = positive = [[query, "words"]];
  const forms = new Map(), commonForms = new Map(), quoted = [], without = [];
  const shortest = positive.flatMap(([text]) => chunksOf(text)).length >= SENTENCE_WORDS ? 1 : 2;
  for (const [number, [content, kind]] of segments.entries()) {
    const terms = termsOf(content), letters = wordsOf(content).at(-1)?.[1] ?? [];
    if (kind === "without") {
      without.push(phrase(terms, letters));
      continue;
    }
    const chunks = chunksOf(content).filter((chunk) => termsOf(chunk).length);
    for (const [at, chunk] of chunks.entries()) {
      const isLast = kind === "words" && number === segments.length - 1 && at === chunks.length - 1;
      addChunk(chunk, isLast && content.endsWith(chunk), shortest, forms, commonForms);
    }
    if (kind === "quoted") {
      quoted.push(phrase(terms, letters));
      addForms(forms, quoted.at(-1));
    }
  }
  const text = segments.length === 1 ? query : chunksOf(positive.map(([part]) => part).join(" ")).join(" ");
  const remaining = [...(forms.size ? forms : commonForms).values()];
  const words = remaining.flatMap((several, number) => several.map((form) => [number, ...form]));
  const same = indexWords(text), isTitle = chunksOf(same).length <= TITLE_WORDS;
  // SQLite reads a text up to a NUL character.
  const plan = { text: text.replaceAll("\0", " "), same: isTitle ? same : "", words, quoted, without: either(without) || null };
  return JSON.stringify(plan);
}

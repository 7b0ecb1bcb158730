// Where the words of a query are in a text, as msdc/search/matches.py has it: for highlighting, and for the passage
// that is shown. Offsets are in UTF-16 units.

import { SPACE, chunksOf, foldTable, spellings, termsOf, withOrderedMarks } from "./words.js";

const CHUNK = new RegExp(SPACE.replace("[", "[^") + "+", "g");
const SYLLABLE = /[\u1100-\u1112][\u1161-\u1175][\u11a8-\u11c2]?|[\uac00-\ud7a3][\u11a8-\u11c2]/g;

// A text of folded characters with its Korean letters composed, and of each unit the number of its character.
function composedParts(parts) {
  const folded = parts.join(""), origins = [];
  parts.forEach((part, number) => {
    for (let unit = 0; unit < part.length; ++unit) origins.push(number);
  });
  const composed = [], composedOrigins = [];
  let end = 0;
  for (const { 0: letters, index } of [...folded.matchAll(SYLLABLE), { 0: "", index: folded.length }]) {
    const syllable = letters.normalize("NFC");
    composed.push(folded.slice(end, index), syllable);
    for (; end < index; ++end) composedOrigins.push(origins[end]);
    for (let unit = 0; unit < syllable.length; ++unit) composedOrigins.push(origins[index]);
    end = index + letters.length;
  }
  return [composed.join(""), composedOrigins];
}

// The words of a text as `indexWords` has them before other spellings; of pairs of letters both.
function tokensOf(text) {
  const { folds, split, parts: lettersOf } = foldTable();
  const characters = Array.from(text), parts = characters.map((character) => folds.get(character) ?? character);
  const offsets = [0];
  for (const character of characters) offsets.push(offsets.at(-1) + character.length);
  const [folded, origins] = composedParts(parts);
  // One past the character of a folded unit, with the marks on it.
  const endOf = (position) => {
    const origin = origins[position], following = origins[position + 1] ?? characters.length;
    let end = origin + 1;
    while (end < following && /^[\u1100-\u11ff]?$/.test(parts[end])) ++end;
    return offsets[end];
  };
  const tokens = [];
  for (const { 0: word, 1: run, index } of folded.matchAll(split)) {
    if (!run) {
      const start = offsets[origins[index]], end = endOf(index + word.length - 1);
      tokens.push({ words: [withOrderedMarks(word)], start, end });
      continue;
    }
    const letters = Array.from(run.matchAll(lettersOf));
    letters.forEach(({ 0: letter, index: at }, number) => {
      const { 0: second, index: last } = letters[number + 1] ?? { 0: "", index: at + letter.length };
      const start = offsets[origins[index + at]], end = endOf(index + last + second.length - 1);
      tokens.push({ words: [letter + second], start, end });
    });
  }
  return tokens;
}

// Other spellings of the words of a text, each with the span of what it spells.
function otherSpellings(text, tokens) {
  const others = [];
  let position = 0;
  for (const { 0: chunk, index } of text.matchAll(CHUNK)) {
    const first = position;
    while (position < tokens.length && tokens[position].start < index + chunk.length) ++position;
    if (first === position) continue;
    const inside = tokens.slice(first, position), { umlauts, joined, parts } = spellings(chunk, termsOf(chunk));
    if (umlauts.length === inside.length) umlauts.forEach((word, at) => others.push({ ...inside[at], words: [word] }));
    for (const word of joined) others.push({ words: [word], start: inside[0].start, end: inside.at(-1).end });
    for (const token of inside.filter(({ words: [word] }) => parts.has(word))) {
      const words = chunksOf(parts.get(token.words[0]));
      others.push({ ...token, words }, ...words.map((word) => ({ ...token, words: [word] })));
    }
  }
  return others;
}

const inOrder = (spans) => [...spans].sort(([a, b], [c, d]) => a - c || b - d);

/**
 * Where each term is: a line of `terms` has a word, or words that follow each other, and a star if the last may go on.
 */
export function findTerms(text, terms) {
  const tokens = tokensOf(text), others = otherSpellings(text, tokens), runs = new Map();
  for (const [number, { words: [word] }] of tokens.entries()) {
    if (runs.has(word)) runs.get(word).push(number);
    else runs.set(word, [number]);
  }
  return terms.split("\n").map((term) => {
    const goesOn = term.endsWith("*"), words = (goesOn ? term.slice(0, -1) : term).split(" "), last = words.length - 1;
    const isTerm = (run) =>
      run.length === words.length &&
      run.every((word, at) => word === words[at] || (goesOn && at === last && word.startsWith(words[at])));
    const starts = !goesOn || last ? (runs.get(words[0]) ?? [])
      : [...runs].flatMap(([word, numbers]) => (word.startsWith(words[0]) ? numbers : []));
    const spans = others.filter((token) => isTerm(token.words)).map(({ start, end }) => [start, end]);
    for (const start of starts) {
      const run = tokens.slice(start, start + words.length);
      if (isTerm(run.map((token) => token.words[0]))) spans.push([run[0].start, run.at(-1).end]);
    }
    return inOrder(spans);
  });
}

/** Spans in order, those that overlap or touch as one. */
export function merged(spans) {
  const disjoint = [];
  for (const [start, end] of inOrder(spans)) {
    const last = disjoint.at(-1);
    if (last && start <= last[1]) last[1] = Math.max(end, last[1]);
    else disjoint.push([start, end]);
  }
  return disjoint;
}

/** The passage with most cosine + share of the terms inside it, a phrase counted by its words; the first of equals. */
export function passageToShow(passages, cosines, terms, places) {
  const weights = terms.split("\n").map((term) => term.split(" ").length);
  const all = weights.reduce((sum, weight) => sum + weight, 0);
  const scores = passages.map(([start, end], number) => {
    const inside = places.map((spans) => spans.some(([first, last]) => start <= first && last <= end));
    const matched = weights.reduce((sum, weight, at) => sum + (inside[at] ? weight : 0), 0);
    return Number((cosines[number] + matched / all).toFixed(6));
  });
  return scores.indexOf(scores.reduce((most, score) => Math.max(most, score)));
}

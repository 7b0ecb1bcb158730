// A tokenizer.json compiled at export, with the ids of Hugging Face's `tokenizers` library.

import { allow, damaged, nextCharacter, spend } from "./bytes.js";
import { CharacterMap, CharacterSet, CompiledFile, decode, FILE, previousCharacter } from "./compiled_file.js";
import { MAX_SPECIAL, textTable, WordReader, words } from "./compiled_file.js";
import { Pattern } from "./pattern.js";
import { Splitter } from "./splitter.js";
import { addByte, SEED } from "./tables.js";
import { TextRules } from "./text_rules.js";
import { readModel } from "./token_models.js";

const SINGLE_WORD = 1, STRIP_LEFT = 2, STRIP_RIGHT = 4;

class CompiledTokenizer {
  constructor(bytes) {
    allow([]); // the names of bytes are looked up
    const file = new CompiledFile(bytes), reader = new WordReader(file);
    const table = () => file.table(reader.next());
    const sets = reader.list(() => new CharacterSet(table()));
    const maps = reader.list(() => new CharacterMap(table()));
    const patterns = reader.list(() => new Pattern(table(), sets));
    this.word = new CharacterSet(table());
    this.space = new CharacterSet(table());
    const added = () => {
      const found = { names: textTable(table()), records: words(table()), starts: new CharacterSet(table()) };
      return found.records.length >= 2 * found.names.lengths.length ? found : damaged(FILE);
    };
    this.raw = added();
    this.normalized = added();
    this.rules = new TextRules(reader, file, { sets, maps, patterns });
    this.splitter = new Splitter(reader, file, { patterns });
    this.vocabulary = textTable(table());
    this.model = readModel(reader, file, this.vocabulary);
    this.size = reader.next();
    this.before = reader.list(() => reader.next(), MAX_SPECIAL);
    this.after = reader.list(() => reader.next(), MAX_SPECIAL);
    if (reader.at !== reader.words.length) damaged(FILE);
  }

  // Parts of a text as [from, to, id]; id -1: ordinary text.
  findAdded({ names, records, starts }, text) {
    const out = [];
    let done = 0;
    const isWord = (at) => at < text.length && this.word.has(decode(text, at));
    for (let at = 0; at < text.length && names.longest; ) {
      const next = nextCharacter(text, at);
      let index = -1, to = next;
      if (starts.has(decode(text, at, next))) {
        const limit = Math.min(text.length, at + names.longest);
        for (let end = at, hash = SEED; end < limit; ) {
          const stop = nextCharacter(text, end);
          while (end < stop) hash = addByte(hash, text[end++]);
          const found = names.findHashed(hash, text, at, end);
          if (found >= 0) [index, to] = [found, end];
        }
      }
      let from = at;
      at = to;
      if (index < 0) continue;
      const flags = records[2 * index + 1];
      if (flags & SINGLE_WORD && ((from > 0 && isWord(previousCharacter(text, from))) || isWord(to))) continue;
      while (flags & STRIP_LEFT && from > done && this.space.has(decode(text, previousCharacter(text, from), from))) {
        from = previousCharacter(text, from);
      }
      while (flags & STRIP_RIGHT && to < text.length && this.space.has(decode(text, to))) {
        spend(1);
        to = nextCharacter(text, to);
      }
      if (done < from) out.push([done, from, -1]);
      out.push([from, to, records[2 * index]]);
      done = to;
    }
    if (done < text.length || text.length === 0) out.push([done, text.length, -1]);
    return out;
  }

  // Ids of a text (UTF-8), without the special ids around it.
  segment(text) {
    allow(text);
    const ids = [];
    for (const [from, to, id] of this.findAdded(this.raw, text)) {
      if (id >= 0) {
        ids.push(id);
        continue;
      }
      const normal = this.rules.apply(text.subarray(from, to));
      for (const [start, end, inner] of this.findAdded(this.normalized, normal)) {
        if (inner >= 0) {
          ids.push(inner);
          continue;
        }
        const pieces = this.splitter.split(normal.subarray(start, end), from === 0 && start === 0);
        for (const piece of pieces) this.model(piece, ids);
      }
    }
    return ids;
  }
}

export const TOKENIZER_KIND = "tokenizer-json";

// The tokenizer of a bundle: `segment` gives the ids between `before` and `after`.
export function openTokenizer(file) {
  return new CompiledTokenizer(file);
}

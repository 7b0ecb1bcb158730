// Search by words and by meaning in the SQLite file of `msdc search` and `msdc.open_index`, with their answers: FTS5 for
// words, 8-bit vectors of passages for meaning. What is made here opens there.

import { EncoderError } from "./msdc.js";
import { indexWords, matchExpression } from "./words.js";

const FORMAT = "2", BLOCK = 256, CANDIDATES = 1000, WEIGHT = 20;
const SHORT = 8, JOINED = 32, TITLE_SHARE = 3; // tokens, see msdc/search/passages.py
const PROBES = ["\u{12000}", "\u{103a0}"]; // characters that hardly any vocabulary has
// Offsets are in characters, as in Python; a character of two units is one of these while a text is taken apart.
const WIDE = "\ue000";
const SPACE = "[\\t-\\r\\x1c- \\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const END = new RegExp(`(?<=[.!?…؟।])["'”’»)\\]]*${SPACE}+|(?<=[。！？])|${SPACE}*\\n${SPACE}*`, "g");
const EDGES = new RegExp(`^${SPACE}+|${SPACE}+$`, "g"), FIRST = new RegExp(`^${SPACE}*`);
const SCHEMA = `
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE documents (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL UNIQUE, title TEXT NOT NULL, text TEXT NOT NULL, metadata TEXT NOT NULL, crc INTEGER NOT NULL);
CREATE TABLE passages (id INTEGER PRIMARY KEY AUTOINCREMENT, document INTEGER NOT NULL REFERENCES documents ON DELETE CASCADE, start INTEGER NOT NULL, end INTEGER NOT NULL, scale REAL, vector BLOB, crc INTEGER);
CREATE INDEX passages_of_document ON passages (document);
CREATE VIRTUAL TABLE words USING fts5(title, text, tokenize='ascii');
CREATE TRIGGER removed AFTER DELETE ON documents BEGIN DELETE FROM words WHERE rowid = old.id; END;`;

const utf8 = new TextEncoder();
const strip = (text) => text.replace(EDGES, "");
const rounded = (number) => Math.round(number * 1e4) / 1e4;
const damaged = (what) => {
  throw new EncoderError(`the index is damaged (${what})`);
};

// Every byte's remainder in CRC-32.
const REMAINDERS = Uint32Array.from({ length: 256 }, (_, byte) => {
  for (let bit = 0; bit < 8; ++bit) byte = byte & 1 ? 0xedb88320 ^ (byte >>> 1) : byte >>> 1;
  return byte;
});

function crc32(bytes, start = 0) {
  let crc = ~start;
  for (const byte of bytes) crc = REMAINDERS[(crc ^ byte) & 255] ^ (crc >>> 8);
  return ~crc >>> 0;
}

const crcOf = ({ id, text, title, metadata }) => crc32(utf8.encode([id, text, title, metadata].join("\0")));

function unit(vector) {
  const length = Math.hypot(...vector);
  return length ? vector.map((value) => value / length) : vector;
}

// --- passages -----------------------------------------------------------------------------------------------------------

// A text by characters: `flat` has one unit for each.
function charactersOf(text) {
  const points = Array.from(text);
  const flat = points.length === text.length ? text : points.map((point) => (point.length > 1 ? WIDE : point)).join("");
  return { flat, slice: (start, end) => points.slice(start, end).join("") };
}

function sentenceSpans(flat) {
  const spans = [];
  let start = 0;
  const ends = Array.from(flat.matchAll(END), ({ index, 0: found }) => [index, index + found.length]);
  for (const [end, following] of [...ends, [flat.length, flat.length]]) {
    const part = flat.slice(start, end), kept = strip(part);
    const left = start + FIRST.exec(part)[0].length;
    if (kept) spans.push([left, left + kept.length]);
    start = following;
  }
  return spans;
}

function halves(flat, [start, end]) {
  const middle = (start + end) >> 1, after = flat.indexOf(" ", middle);
  const blanks = [flat.slice(start + 1, middle).lastIndexOf(" ") + start + 1, after < end - 1 ? after : -1];
  if (blanks[0] === start) blanks[0] = -1;
  const [near = middle] = blanks.filter((at) => at > 0).sort((a, b) => Math.abs(a - middle) - Math.abs(b - middle));
  return [[start, near], [near, end]];
}

function joined(parts, most) {
  const found = [];
  for (const [span, tokens] of parts) {
    const last = found.at(-1);
    if (last && Math.min(tokens, last[1]) < SHORT && tokens + last[1] <= Math.min(most, JOINED)) {
      found.splice(-1, 1, [[last[0][0], span[1]], last[1] + tokens]);
    } else found.push([span, tokens]);
  }
  return found.map(([span]) => span);
}

// --- filters ------------------------------------------------------------------------------------------------------------

// SQL of a filter: a value, a list of values, or { least, most }; of several, all.
function conditions(where) {
  const parts = ["1"], values = [];
  for (const [name, wanted] of Object.entries(where)) {
    const path = `$."${name.replaceAll('"', "")}"`;
    if (wanted !== null && typeof wanted === "object" && !Array.isArray(wanted)) {
      for (const [sign, bound] of [[">=", wanted.least], ["<=", wanted.most]]) {
        if (bound === undefined || bound === null) continue;
        parts.push(`CAST(json_extract(metadata, ?) AS REAL) ${sign} ?`);
        values.push(path, bound);
      }
    } else {
      const some = Array.isArray(wanted) ? wanted : [wanted];
      parts.push(`CAST(json_extract(metadata, ?) AS TEXT) IN (${some.map(() => "?").join()})`);
      values.push(path, ...some.map((one) => String(typeof one === "boolean" ? Number(one) : one)));
    }
  }
  return [parts.join(" AND "), values];
}

// --- the index ----------------------------------------------------------------------------------------------------------

/** Documents that are found by words and by meaning. Made by `openIndex`. */
export class SearchIndex {
  #sqlite;
  #db;
  #encoder;
  #stale = true;
  #passages = { rows: [], owners: [], scales: [], codes: new Int8Array(0) };

  constructor(sqlite, db, encoder, model) {
    this.#sqlite = sqlite;
    this.#db = db;
    this.#encoder = encoder;
    Object.assign(this, model);
  }

  #rows(sql, bind) {
    return this.#db.exec({ sql, bind, rowMode: "array", returnValue: "resultRows" });
  }

  get #made() {
    return this.#db.selectValue("SELECT count(*) FROM sqlite_master WHERE name = 'facts'") === 1;
  }

  get length() {
    return this.#made ? this.#db.selectValue("SELECT count(*) FROM documents") : 0;
  }

  async add(documents) {
    return this.#put(documents, false);
  }

  async update(documents) {
    return this.#put(documents, true);
  }

  remove(ids) {
    const before = this.length;
    if (before) this.#db.transaction(() => ids.forEach((id) => this.#rows("DELETE FROM documents WHERE key = ?", [String(id)])));
    this.#stale = true;
    return before - this.length;
  }

  /** The SQLite file. */
  bytes() {
    return this.#sqlite.capi.sqlite3_js_db_export(this.#db);
  }

  close() {
    this.#db.close();
  }

  async #put(given, replace) {
    const last = "SELECT max(coalesce(max(id), 0), coalesce(max(CAST(key AS INTEGER)), 0)) FROM documents";
    let number = this.#made ? this.#db.selectValue(last) : 0;
    const documents = Array.from(given, (row) => {
      const { id = ++number, text, title = "", ...values } = typeof row === "string" ? { text: row } : row;
      if (typeof text !== "string" || !strip(text)) throw new TypeError(`document ${id} has no text`);
      const sorted = Object.fromEntries(Object.entries(values).sort(([a], [b]) => (a < b ? -1 : 1)));
      return { id: String(id), text, title, metadata: JSON.stringify(sorted) };
    });
    for (let start = 0; start < documents.length; start += BLOCK) {
      const block = documents.slice(start, start + BLOCK), made = await this.#passagesOf(block);
      try {
        this.#db.transaction(() => this.#write(block, made, replace));
      } catch (error) {
        if (/UNIQUE/.test(error.message)) throw new EncoderError("a document of this id is there already; use update");
        throw error;
      } finally {
        this.#stale = true;
      }
    }
    return documents.length;
  }

  #write(block, made, replace) {
    if (!this.#made) {
      this.#db.exec(SCHEMA);
      const { source, name } = this.#encoder;
      const facts = { format: FORMAT, model: source, name, source };
      for (const fact of Object.entries(facts)) this.#rows("INSERT INTO facts VALUES (?, ?)", fact);
    }
    if (replace) for (const { id } of block) this.#rows("DELETE FROM documents WHERE key = ?", [id]);
    block.forEach((one, at) => {
      const insert = "INSERT INTO documents (key, title, text, metadata, crc) VALUES (?, ?, ?, ?, ?) RETURNING id";
      const [[row]] = this.#rows(insert, [one.id, one.title, one.text, one.metadata, crcOf(one)]);
      this.#rows("INSERT INTO words (rowid, title, text) VALUES (?, ?, ?)", [row, indexWords(one.title), indexWords(one.text)]);
      for (const [start, end, scale, vector] of made[at]) {
        const crc = vector && crc32(vector, row);
        this.#rows("INSERT INTO passages (document, start, end, scale, vector, crc) VALUES (?, ?, ?, ?, ?, ?)", [row, start, end, scale, vector, crc]);
      }
    });
  }

  async #count(texts) {
    const rows = await this.#encoder.tokenize(texts, { prompt: "", maxLength: Infinity });
    return rows.map((row) => row.length - this.special.size);
  }

  // Whether more than half of a text's tokens stand for characters that the vocabulary lacks.
  async #unread(texts) {
    const rows = await this.#encoder.tokenize(texts, { prompt: "" });
    return rows.map((row) => {
      const own = row.filter((id) => !this.special.has(id));
      return this.unknown.size > 0 && own.filter((id) => this.unknown.has(id)).length > own.length / 2;
    });
  }

  // Of each document [start, end, scale, vector] of its passages; no vector where the model cannot read one.
  async #passagesOf(block) {
    const room = block.some(({ title }) => title) ? Math.floor(this.most / TITLE_SHARE) : 0, most = this.most - room;
    const texts = block.map(({ text }) => charactersOf(text)), whole = block.map(() => []);
    let todo = texts.flatMap(({ flat }, at) => sentenceSpans(flat).map((span) => [at, span]));
    while (todo.length) {
      const counts = await this.#count(todo.map(([at, span]) => texts[at].slice(...span)));
      todo = todo.flatMap(([at, span], i) => {
        if (counts[i] > most && span[1] - span[0] >= 2) return halves(texts[at].flat, span).map((half) => [at, half]);
        whole[at].push([span, counts[i]]);
        return [];
      });
    }
    const wanted = new Map(), parts = [];
    for (const [at, { title }] of block.entries()) {
      let words = title.split(new RegExp(`${SPACE}+`)).filter(Boolean);
      while (words.length && (await this.#count([words.join(" ")]))[0] > room - 2) words = words.slice(0, words.length >> 1);
      const first = words.length ? `${words.join(" ")}. ` : "";
      const spans = joined(whole[at].sort(([a], [b]) => a[0] - b[0]), most);
      parts.push(spans.map(([start, end]) => [start, end, first + texts[at].slice(start, end)]));
      for (const [, , text] of parts.at(-1)) wanted.set(text, [null, null]);
    }
    const unread = await this.#unread([...wanted.keys()]), known = [...wanted.keys()].filter((_, i) => !unread[i]);
    const vectors = await this.#encoder.encode(known);
    known.forEach((text, i) => {
      const vector = unit(vectors[i]), largest = vector.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      if (!largest) return;
      const codes = Int8Array.from(vector, (value) => Math.round((value * 127) / largest));
      // With this scale the rounded vector has length 1, so that no cosine is above it.
      wanted.set(text, [Math.fround(1 / Math.hypot(...codes)), new Uint8Array(codes.buffer)]);
    });
    return parts.map((spans) => spans.map(([start, end, text]) => [start, end, ...wanted.get(text)]));
  }

  #refresh() {
    if (!this.#stale) return;
    const found = this.#rows("SELECT id, document, scale, vector, crc FROM passages WHERE vector IS NOT NULL ORDER BY id");
    const { width } = this.#encoder, codes = new Int8Array(found.length * width);
    found.forEach(([id, document, , vector, crc], at) => {
      if (vector.length !== width || crc32(vector, document) !== crc) damaged(`the vector of passage ${id}`);
      codes.set(new Int8Array(vector.buffer, vector.byteOffset, width), at * width);
    });
    const [rows, owners, scales] = [0, 1, 2].map((column) => found.map((row) => row[column]));
    this.#passages = { rows, owners, scales, codes };
    this.#stale = false;
  }

  #cosines(query) {
    const { codes, scales } = this.#passages, width = query.length;
    return scales.map((scale, row) => {
      let sum = 0;
      for (let i = 0, at = row * width; i < width; ++i) sum += codes[at + i] * query[i];
      return sum * scale;
    });
  }

  async search(query, { top = 5, mode = "both", threshold = null, where = {} } = {}) {
    if (!strip(query)) throw new RangeError("a query is empty");
    if (!(top >= 1)) throw new RangeError(`top: ${top}, expected at least 1`);
    if (!["words", "vectors", "both"].includes(mode)) throw new RangeError(`mode ${mode} is unknown; known: words, vectors, both`);
    const reads = mode !== "words" && !(await this.#unread([query]))[0];
    const vector = reads ? unit(await this.#encoder.encode(query)) : null;
    if (!this.#made) return [];
    this.#refresh();
    const [kept, values] = conditions(where), filtered = `SELECT id FROM documents WHERE ${kept}`;
    const most = Math.max(CANDIDATES, 4 * top), { owners } = this.#passages;
    const cosines = vector ? this.#cosines(vector) : [], best = new Map(); // document -> its best passage
    const allowed = Object.keys(where).length ? new Set(this.#rows(filtered, values).map(([row]) => row)) : null;
    cosines.forEach((cosine, at) => {
      const before = best.get(owners[at]);
      if ((before === undefined || cosine > cosines[before]) && (allowed?.has(owners[at]) ?? true)) best.set(owners[at], at);
    });
    const near = [...best].sort((a, b) => cosines[b[1]] - cosines[a[1]]).slice(0, most).map(([row]) => row);
    const expression = mode === "vectors" ? "" : matchExpression(query), words = new Map();
    if (expression) {
      const ranked = "SELECT rowid, -rank FROM words WHERE words MATCH ?", inside = allowed ? ` AND rowid IN (${filtered})` : "";
      const bind = [expression, ...(allowed ? values : []), most];
      for (const [row, bm25] of this.#rows(`${ranked}${inside} ORDER BY rank LIMIT ?`, bind)) words.set(row, bm25);
      if (words.size === most) {
        // Below the best by words: bm25 of those that are near in meaning.
        const others = JSON.stringify(near.filter((row) => !words.has(row)));
        const again = `${ranked} AND rowid IN (SELECT value FROM json_each(?))`;
        for (const [row, bm25] of this.#rows(again, [expression, others])) words.set(row, bm25);
      }
    }
    const weight = mode === "both" ? WEIGHT : 1, cosine = (row) => cosines[best.get(row)];
    return [...new Set([...near, ...words.keys()])]
      .filter((row) => threshold === null || mode === "words" || (cosine(row) ?? -1) >= threshold)
      .map((row) => ({ row, score: rounded((words.get(row) ?? 0) + weight * (cosine(row) ?? 0)) }))
      .sort((a, b) => b.score - a.score || a.row - b.row)
      .slice(0, top)
      .map(({ row, score }) => this.#hit(row, score, cosine(row) ?? 0, words.get(row) ?? 0, best.get(row)));
  }

  #hit(row, score, cosine, words, place) {
    const [[id, text, title, metadata, crc]] = this.#rows("SELECT key, text, title, metadata, crc FROM documents WHERE id = ?", [row]);
    if (crcOf({ id, text, title, metadata }) !== crc) damaged(`document ${id}`);
    let span = [0, text.length];
    if (place !== undefined) {
      const { slice } = charactersOf(text), rows = this.#passages.rows;
      const [[start, end]] = this.#rows("SELECT start, end FROM passages WHERE id = ?", [rows[place]]);
      const before = slice(0, start).length;
      span = [before, before + slice(start, end).length];
    }
    const [start, end] = span;
    return {
      id, score, cosine: rounded(cosine), words: rounded(words), text, start, end, passage: text.slice(start, end), title,
      metadata: JSON.parse(metadata),
    };
  }
}

async function sqliteOf(sqlite) {
  if (typeof sqlite === "function") return sqlite();
  const url = new URL(sqlite ?? "./runtime/sqlite3.mjs", sqlite ? globalThis.location?.href : import.meta.url).href;
  try {
    return await (await import(/* webpackIgnore: true */ /* @vite-ignore */ url)).default();
  } catch (error) {
    const advice = "export with --with-runtime, or pass {sqlite}, the default export of @sqlite.org/sqlite-wasm";
    throw new EncoderError(`${url}: no SQLite (${error.message}): ${advice}`);
  }
}

/** The index in `source`: a URL, the file's bytes, or null for a new one. */
export async function openIndex(source, encoder, { sqlite } = {}) {
  let bytes = source;
  if (typeof source === "string" || source instanceof URL) {
    const answer = await fetch(source);
    if (!answer.ok) throw new EncoderError(`${source}: status ${answer.status}`);
    bytes = new Uint8Array(await answer.arrayBuffer());
  }
  const found = await sqliteOf(sqlite), { capi, wasm, oo1 } = found, db = new oo1.DB(":memory:");
  const [[...special], ...probes] = await encoder.tokenize(["", ...PROBES], { prompt: "" });
  const unknown = new Set(probes[0].filter((id) => probes[1].includes(id) && !special.includes(id)));
  const prompt = encoder.prompts[encoder.defaultPrompt] ?? "";
  const [ids] = await encoder.tokenize([prompt], { prompt: "", maxLength: Infinity });
  const model = { special: new Set(special), unknown, most: encoder.maxLength - ids.length };
  try {
    if (bytes) {
      const copy = Uint8Array.from(bytes);
      copy.fill(1, 18, 20); // a file that was written with a write-ahead log, which a file in memory has not
      const place = wasm.allocFromTypedArray(copy), { SQLITE_DESERIALIZE_FREEONCLOSE: free, SQLITE_DESERIALIZE_RESIZEABLE: grow } = capi;
      db.checkRc(capi.sqlite3_deserialize(db.pointer, "main", place, copy.length, copy.length, free | grow));
    }
    db.exec("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF");
    const tables = db.selectValues("SELECT name FROM sqlite_master WHERE type = 'table'");
    if (tables.length) {
      if (!["facts", "documents", "passages", "words"].every((name) => tables.includes(name))) damaged("no search index");
      const said = db.selectValue("PRAGMA quick_check(1)"), facts = Object.fromEntries(db.selectArrays("SELECT name, value FROM facts"));
      if (said !== "ok") damaged(said);
      if (facts.format !== FORMAT) throw new EncoderError("an index of another version of msdc");
      if (![facts.source, facts.model].includes(encoder.source)) {
        throw new EncoderError(`the index was made with another ${facts.name} than this ${encoder.name}`);
      }
    }
    return new SearchIndex(found, db, encoder, model);
  } catch (error) {
    db.close();
    if (error instanceof EncoderError) throw error;
    return damaged(error.message);
  }
}

// Search by words and by meaning in the SQLite file of `msdc search` and `msdc.open_index`, with their answers: FTS5 for
// words, 8-bit vectors of passages for meaning. What is made here opens there.

import { addPassages, blockOf, crc32, crcOfPassage, damaged, rebuiltPassages, removeDocuments } from "./blocks.js";
import { findTerms, merged, passageToShow } from "./matches.js";
import { EncoderError } from "./msdc.js";
import { IS_SPACE, SPACE, chunksOf, indexWords, parseQuery } from "./words.js";

const MODES = ["words", "vectors", "both"], SYNTAXES = ["operators", "plain"];
const SHORT = 8, JOINED = 32, TITLE_SHARE = 3; // tokens, see msdc/text/passages.py
const PROBES = ["\u{12000}", "\u{103a0}"]; // characters that hardly any vocabulary has
// Offsets are in characters, as in Python; a character of two units is one of these while a text is taken apart.
const WIDE = "\ue000";
const END = new RegExp(`(?<=[.!?…؟।])["'”’»)\\]]*${SPACE}+|(?<=[。！？])|(?<!${SPACE})${SPACE}*\\n${SPACE}*`, "g");
// The statements of search.sql, which all platforms share, by name.
const SQL = Object.fromEntries("{search_sql}".split("-- name: ").slice(1).map((part) => /^(\w+)\n(.*)$/s.exec(part).slice(1)));
const [BLOCK, CANDIDATES] = SQL.constants.match(/\d+/g).map(Number);

const utf8 = new TextEncoder(), decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
/** An intact index of another model: opened without an encoder, `rebuild` encodes its documents again. */
export class OtherModel extends EncoderError {
  constructor(problem) {
    super(`the index: ${problem}; open it without an encoder and let rebuild encode its documents again`);
    this.name = "OtherModel";
  }
}

const crcOf = ({ id, text, title, metadata }) => crc32(utf8.encode([id, text, title, metadata].join("\0")));

// The document of a row, whose last value is its checksum.
function documentOf([id, text, title, metadata, crc]) {
  const document = { id, text, title, metadata };
  if (crcOf(document) !== crc) damaged(`document ${id}`);
  return document;
}

// A number that documents with the same stored words have in common.
function formOf(title, text) {
  const bytes = utf8.encode(`${title}\0${text}`);
  return crc32(bytes) * 2 ** 20 + (bytes.length % 2 ** 20);
}

// Where a text without the blanks around it starts and ends.
function edges(text) {
  let start = 0, end = text.length;
  while (start < end && IS_SPACE.test(text[start])) ++start;
  while (end > start && IS_SPACE.test(text[end - 1])) --end;
  return [start, end];
}

function requireText(text, what) {
  if (typeof text !== "string") throw new TypeError(`${what} is not a text`);
  if (/\p{Surrogate}/u.test(text)) throw new TypeError(`${what} has half of a surrogate pair`);
  return text;
}

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

// Spans in characters of a text as spans in its units.
function unitSpans(text, spans) {
  const offsets = [0];
  for (const point of text) offsets.push(offsets.at(-1) + point.length);
  return spans.map(([start, end]) => [offsets[start], offsets[end]]);
}

function sentenceSpans(flat) {
  const spans = [];
  let start = 0;
  const ends = Array.from(flat.matchAll(END), ({ index, 0: found }) => [index, index + found.length]);
  for (const [end, following] of [...ends, [flat.length, flat.length]]) {
    const [left, right] = edges(flat.slice(start, end));
    if (left < right) spans.push([start + left, start + right]);
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

// What is needed of a model: its special and unknown tokens, and how many others it reads after its prompt.
async function modelOf(encoder) {
  const [[...special], ...probes] = await encoder.tokenize(["", ...PROBES], { prompt: "" });
  const unknown = new Set(probes[0].filter((id) => probes[1].includes(id) && !special.includes(id)));
  const prompt = encoder.prompts[encoder.defaultPrompt] ?? "";
  const [ids] = await encoder.tokenize([prompt], { prompt: "", maxLength: Infinity });
  return { special: new Set(special), unknown, most: encoder.maxLength - ids.length };
}

async function countTokens(texts, encoder, { special }) {
  const rows = await encoder.tokenize(texts, { prompt: "", maxLength: Infinity });
  return rows.map((row) => row.length - special.size);
}

// Whether more than half of a text's tokens stand for characters that the vocabulary lacks.
async function findUnread(texts, encoder, { special, unknown }) {
  const rows = await encoder.tokenize(texts, { prompt: "" });
  return rows.map((row) => {
    const own = row.filter((id) => !special.has(id));
    return unknown.size > 0 && own.filter((id) => unknown.has(id)).length > own.length / 2;
  });
}

// Of each document [start, end, scale, vector] of its passages; no vector where the model cannot read one.
async function passagesOf(block, encoder, model) {
  const room = Math.floor(model.most / TITLE_SHARE);
  const limits = block.map(({ title }) => (title.trim() ? model.most - room : model.most));
  const texts = block.map(({ text }) => charactersOf(text)), whole = block.map(() => []);
  let todo = texts.flatMap(({ flat }, at) => sentenceSpans(flat).map((span) => [at, span]));
  while (todo.length) {
    const counts = await countTokens(todo.map(([at, span]) => texts[at].slice(...span)), encoder, model);
    todo = todo.flatMap(([at, span], i) => {
      if (counts[i] > limits[at] && span[1] - span[0] >= 2) return halves(texts[at].flat, span).map((half) => [at, half]);
      whole[at].push([span, counts[i]]);
      return [];
    });
  }
  const wanted = new Map(), parts = [];
  for (const [at, { title }] of block.entries()) {
    let words = chunksOf(title);
    while (words.length && (await countTokens([words.join(" ")], encoder, model))[0] > room - 2) words = words.slice(0, words.length >> 1);
    const first = words.length ? `${words.join(" ")}. ` : "";
    const spans = joined(whole[at].sort(([a], [b]) => a[0] - b[0]), limits[at]);
    parts.push(spans.map(([start, end]) => [start, end, first + texts[at].slice(start, end)]));
    for (const [, , text] of parts.at(-1)) wanted.set(text, [null, null]);
  }
  const unread = await findUnread([...wanted.keys()], encoder, model), known = [...wanted.keys()].filter((_, i) => !unread[i]);
  const vectors = await encoder.encode(known);
  known.forEach((text, i) => {
    const vector = unit(vectors[i]), largest = vector.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    if (!largest) return;
    const codes = Int8Array.from(vector, (value) => Math.round((value * 127) / largest));
    // With this scale the rounded vector has length 1, so that no cosine is above it.
    wanted.set(text, [Math.fround(1 / Math.hypot(...codes)), new Uint8Array(codes.buffer)]);
  });
  return parts.map((spans) => spans.map(([start, end, text]) => [start, end, ...wanted.get(text)]));
}

// --- filters ------------------------------------------------------------------------------------------------------------

// One value (a text, a number, a document) is never taken apart.
const oneOrMore = (values) => (typeof values === "string" || !values?.[Symbol.iterator] ? [values] : values);

// The facts of an index of this encoder.
const factsOf = ({ source, name, cosines = null }) => [source, name, source, cosines && JSON.stringify(cosines)];

const isRecord = (value) => Object(value) === value && !Array.isArray(value) && !(value instanceof Date);
const isPlain = (value) => ["string", "boolean"].includes(typeof value) || Number.isFinite(value);

// A value of a filter, or its bounds as [least, most]; undefined if it is neither.
function alternative(value) {
  if (value === null) return null;
  const { least = null, most = null, ...others } = isRecord(value) ? value : { least: value, most: value };
  const sides = [least, most].map((side) => (side instanceof Date ? side.toISOString() : side));
  const arePlain = sides.some(isPlain) && sides.every((side) => side === null || isPlain(side));
  if (Object.keys(others).length || !arePlain) return undefined;
  return isRecord(value) ? sides : sides[0];
}

// What the statement `filter` takes: [[column, [alternative, ...], excluded], ...].
function conditions(where) {
  const parts = Object.entries(where).map(([name, required]) => {
    if (name.includes('"')) throw new RangeError(`filter ${name}: a name with a double quote`);
    const excluded = isRecord(required) && Object.keys(required).join() === "not";
    const values = excluded ? required.not : required;
    const alternatives = (Array.isArray(values) ? values : [values]).map(alternative);
    if (!alternatives.length) throw new RangeError(`filter ${name}: an empty list matches nothing`);
    if (alternatives.includes(undefined)) {
      throw new RangeError(`filter ${name}: expected a value, null, { least, most }, a list of them, or { not: them }`);
    }
    return [name, alternatives, excluded ? 1 : 0];
  });
  return json(parts);
}

// JSON without what JSON cannot hold; SQLite reads it up to a NUL character.
function json(value) {
  return JSON.stringify(value, function (name, one) {
    if (this[name] instanceof Date && one === null) throw new TypeError(`${name} is an invalid date`);
    if ([name, one].some((text) => typeof text === "string" && /\0|\p{Surrogate}/u.test(text))) {
      throw new TypeError("half of a surrogate pair or a NUL character in an id, a value or a filter");
    }
    if (typeof one === "number" && !Number.isFinite(one)) throw new TypeError(`${name} is ${one}, which JSON cannot hold`);
    return one;
  });
}

// Rows as arrays. Texts are decoded here: the library would read them up to a NUL character.
function rowsOf(db, { capi }, sql, bind) {
  const found = [];
  db.exec({ sql, bind, rowMode: "stmt", callback: (statement) => {
    found.push(Array.from({ length: statement.columnCount }, (_, at) =>
      capi.sqlite3_column_type(statement.pointer, at) === capi.SQLITE_TEXT ? decoder.decode(statement.getBlob(at)) : statement.get(at)));
  } });
  return found;
}

// --- the index ----------------------------------------------------------------------------------------------------------

/** Documents that are found by words and by meaning. Made by `openIndex`. */
export class SearchIndex {
  #sqlite;
  #db;
  #encoder;
  #stale = true;
  #passages = { numbers: new Map(), owners: [], scales: [], codes: new Int8Array(0) };

  constructor(sqlite, db, encoder, model) {
    this.#sqlite = sqlite;
    this.#db = db;
    this.#encoder = encoder;
    Object.assign(this, model);
  }

  #requireEncoder() {
    if (!this.#encoder) throw new TypeError("the index was opened without an encoder, which only words need not");
    return this.#encoder;
  }

  #rows(sql, bind) {
    return rowsOf(this.#db, this.#sqlite, sql, bind);
  }

  #run = (sql, bind) => this.#rows(sql, bind);

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
    const before = this.length, keys = json(Array.from(oneOrMore(ids), String));
    if (before) this.#db.transaction(() => removeDocuments(this.#run, SQL, keys));
    this.#stale = true;
    return before - this.length;
  }

  /** The ids of all documents, in the order in which they were added. */
  ids() {
    return this.#made ? this.#rows(SQL.ids).map(([id]) => id) : [];
  }

  /** The document of an id; null without one. */
  get(id) {
    const [row] = this.#made ? this.#rows(SQL.document, [requireText(String(id), "the id")]) : [];
    if (!row) return null;
    const { metadata, ...document } = documentOf(row);
    return { ...JSON.parse(metadata), ...document };
  }

  /** Encodes all documents again with `encoder`; what was interrupted continues with the next call. */
  async rebuild(encoder, { onProgress = () => {}, signal } = {}) {
    const model = await modelOf(encoder), { source } = encoder;
    const state = () => (this.#made ? this.#db.selectValue(SQL.rebuild_state, [source]) : "rebuilt");
    let count = 0;
    if (state() !== "rebuilt") {
      this.#db.exec(SQL.create_rebuilt);
      this.#rows(SQL.begin_rebuild, [source]);
      this.#rows(SQL.add_rebuild, [source]);
    }
    while (state() !== "rebuilt") {
      signal?.throwIfAborted();
      if (state() === "other") throw new EncoderError("the index: being rebuilt with another model");
      const documents = new Map(this.#rows(SQL.next_rebuilt, [BLOCK]).map(([row, ...fields]) => [row, documentOf(fields)]));
      const made = await passagesOf([...documents.values()], encoder, model);
      const passages = new Map([...documents.keys()].map((row, at) => [row, made[at]]));
      this.#db.transaction(() => {
        if (state() !== "rebuilding") return; // by another call
        for (const [row] of this.#rows(SQL.unbuilt, [JSON.stringify([...passages.keys()])])) {
          for (const part of passages.get(row)) this.#rows(SQL.add_rebuilt, [row, ...part, crcOfPassage(row, ...part)]);
          ++count;
        }
        const [[done, total]] = this.#rows(SQL.count_rebuilt);
        if (passages.size) onProgress({ done, total });
        if (this.#rows(SQL.next_rebuilt, [1]).length) return;
        this.#db.exec(SQL.begin_finish);
        addPassages(this.#run, SQL, rebuiltPassages(this.#run, SQL));
        this.#db.exec(SQL.finish_rebuild);
        this.#rows(SQL.add_facts, factsOf(encoder));
      });
    }
    this.#encoder = encoder;
    this.#stale = true;
    Object.assign(this, model);
    return count;
  }

  /** Gives the space of removed documents back. */
  compact() {
    if (this.#made) this.#db.exec("INSERT INTO words (words) VALUES ('optimize'); VACUUM");
  }

  /** Compares the whole file with its checksums. */
  check() {
    if (this.#made) checkAll(this.#db, this.#sqlite);
  }

  /** The SQLite file. */
  bytes() {
    return this.#sqlite.capi.sqlite3_js_db_export(this.#db);
  }

  close() {
    this.#db.close();
  }

  async #put(given, replace) {
    const documents = Array.from(oneOrMore(given), (row, at) => {
      const { id = null, text, title = "", ...values } = typeof row === "string" ? { text: row } : row;
      const what = id === null ? `document ${at + 1}` : `document ${id}`, [first, end] = edges(requireText(text, what));
      if (first === end) throw new TypeError(`${what} has no text`);
      const sorted = Object.fromEntries(Object.entries(values).sort(([a], [b]) => (a < b ? -1 : 1)));
      return { id: id === null ? null : requireText(String(id), what), text, title: requireText(title, what), metadata: json(sorted) };
    });
    const encoder = this.#requireEncoder();
    for (let start = 0; start < documents.length; start += BLOCK) {
      const block = documents.slice(start, start + BLOCK), made = await passagesOf(block, encoder, this);
      if (encoder !== this.#encoder) throw new OtherModel("rebuilt with another model meanwhile");
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
      this.#db.exec(SQL.schema);
      this.#rows(SQL.add_facts, factsOf(this.#encoder));
    }
    let rows = block.map((one, at) => [one, made[at]]);
    // Of one id the last stays.
    if (replace) rows = [...new Map(rows.map((row) => [row[0].id ?? row, row])).values()];
    const keys = json(rows.map(([{ id }]) => id).filter((id) => id !== null));
    if (replace) removeDocuments(this.#run, SQL, keys);
    const written = [];
    for (const [one, parts] of rows) {
      one.id ??= this.#db.selectValue(SQL.key, [keys]);
      const stored = [indexWords(one.title), indexWords(one.text)];
      this.#rows(SQL.add_document, [one.id, one.text, one.title, one.metadata, crcOf(one), formOf(...stored)]);
      const row = this.#db.selectValue("SELECT last_insert_rowid()");
      this.#rows(SQL.add_words, [row, ...stored]);
      for (const part of parts) written.push([row, ...part]);
    }
    addPassages(this.#run, SQL, written);
  }

  #refresh() {
    if (!this.#stale) return;
    const { width } = this.#encoder, blocks = this.#rows(SQL.blocks).map(blockOf);
    for (const block of blocks) if (block.width !== width) damaged(`the vectors of block ${block.row}`);
    const [numbers, owners, scales] = ["numbers", "documents", "scales"].map((name) => blocks.flatMap((block) => block[name]));
    const codes = new Int8Array(numbers.length * width);
    let at = 0;
    for (const block of blocks) {
      codes.set(block.codes, at);
      at += block.codes.length;
    }
    this.#passages = { numbers: new Map(numbers.map((number, place) => [number, place])), owners, scales, codes };
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

  async search(query, {
    top = 5, mode = "both", threshold = null, where = {}, offset = 0, distinct = true, syntax = "operators",
  } = {}) {
    const [first, last] = edges(requireText(query, "the query"));
    if (first === last) throw new RangeError("a query is empty");
    for (const [name, number, least] of [["top", top, 1], ["offset", offset, 0]]) {
      const fits = Number.isSafeInteger(number) && number >= least;
      if (!fits) throw new RangeError(`${name}: ${number}, expected at least ${least}`);
    }
    for (const [name, value, known] of [["mode", mode, MODES], ["syntax", syntax, SYNTAXES]]) {
      if (!known.includes(value)) throw new RangeError(`${name} ${value} is unknown; known: ${known.join(", ")}`);
    }
    const filter = Object.keys(where).length ? conditions(where) : null;
    const asked = this.#planOf(parseQuery(query, syntax));
    const encoder = mode === "vectors" ? this.#requireEncoder() : this.#encoder;
    if (!encoder) mode = "words";
    const reads = mode !== "words" && !(await findUnread([asked.text], encoder, this))[0];
    const vector = reads ? unit(await encoder.encode(asked.text)) : null;
    if (!this.#made) return [];
    if (vector && encoder !== this.#encoder) throw new OtherModel("rebuilt with another model meanwhile");
    if (vector) this.#refresh();
    const allowed = this.#allowed(filter, asked), inside = allowed && JSON.stringify([...allowed]);
    const cosines = vector ? this.#cosines(vector) : [];
    const { matches, others, plan } = this.#candidates(asked, cosines, mode, offset + top, allowed, inside);
    const ranked = this.#rows(SQL.ranked, [JSON.stringify(matches), JSON.stringify(others), mode, threshold]);
    const hits = [], forms = new Set();
    let position = 0;
    for (const [row, score, cosine, words] of ranked) {
      if (hits.length === top) break;
      const form = distinct ? this.#db.selectValue(SQL.form, [row]) : row;
      if (forms.has(form)) continue;
      forms.add(form);
      if (position++ < offset) continue;
      const hit = this.#hit(row, cosine === null ? [] : cosines, plan.terms, mode);
      const count = distinct ? this.#db.selectValue(SQL.equal, [row, inside]) : 1;
      hits.push({ ...hit, score, cosine, words, count });
    }
    return hits;
  }

  // The parts of a plan.
  #planOf(plan) {
    const [[text, excludes, hasWords, terms]] = this.#rows(SQL.plan, [plan]);
    return { plan, text, excludes, hasWords, terms: terms ?? "" };
  }

  // The documents that a filter and the excluded words leave; null without either.
  #allowed(filter, { plan, excludes }) {
    if (!filter && !excludes) return null;
    const allowed = new Set(this.#rows(SQL.filter, [filter ?? "[]", plan]).map(([row]) => row));
    const [unknown] = filter && !allowed.size ? this.#rows(SQL.unknown, [filter]) : [];
    if (unknown) throw new RangeError(`no column ${unknown[0]} to filter by (columns: ${unknown[1]})`);
    return allowed;
  }

  // What the statement `ranked` takes of the documents nearest by vectors and by words, and the plan that matched. As
  // many for every page of the first 1,000 hits, so that pages agree.
  #candidates(asked, cosines, mode, hits, allowed, inside) {
    let most = CANDIDATES;
    while (most < hits) most *= 4;
    const { owners } = this.#passages, best = new Map(); // document -> the cosine of its best passage
    cosines.forEach((cosine, number) => {
      const owner = owners[number];
      if (cosine > (best.get(owner) ?? -Infinity) && (allowed?.has(owner) ?? true)) best.set(owner, cosine);
    });
    const near = [...best.keys()].sort((a, b) => best.get(b) - best.get(a)).slice(0, most);
    const bind = [inside, most, JSON.stringify(near)];
    const { matches, plan } = mode === "vectors" ? { matches: new Map(), plan: asked } : this.#matches(asked, bind, near.length > 0);
    const others = Object.fromEntries(near.filter((row) => !matches.has(row)).map((row) => [row, best.get(row)]));
    return { matches: [...matches].map(([row, match]) => [row, best.get(row) ?? null, ...match]), others, plan };
  }

  // How documents match the words of a plan; where none does, those of the index that are similar to the words, if the query
  // is short or vectors do not answer it.
  #matches(plan, bind, hasVectors) {
    let rows = plan.hasWords ? this.#rows(SQL.words, [plan.plan, ...bind]) : [];
    if (plan.hasWords && !rows.length) {
      this.#db.exec(SQL.vocabulary);
      const [[similar] = [null]] = this.#rows(SQL.similar, [plan.plan, Number(hasVectors)]);
      if (similar !== null) {
        plan = this.#planOf(similar);
        rows = this.#rows(SQL.words, [similar, ...bind]);
      }
    }
    return { matches: new Map(rows.map(([row, ...match]) => [row, match])), plan };
  }

  #hit(row, cosines, terms, mode) {
    const [fields] = this.#rows(SQL.hit, [row]), { id, text, title, metadata } = documentOf(fields);
    const places = findTerms(text, terms), stored = this.#rows(SQL.passages_of, [row]);
    for (const [, start, end, crc] of stored) if (crcOfPassage(row, start, end) !== crc) damaged(`a passage of document ${id}`);
    const spans = unitSpans(text, stored.map(([, ...span]) => span.slice(0, 2)));
    const { numbers } = this.#passages, without = mode === "vectors" ? -2 : 0;
    const near = stored.map(([passage]) => cosines[numbers.get(passage)] ?? without);
    const nearest = () => near.indexOf(near.reduce((most, cosine) => Math.max(most, cosine)));
    const [start, end] = spans[mode === "vectors" ? nearest() : passageToShow(spans, near, terms, places)];
    const passage = text.slice(start, end), matches = merged(places.flat());
    return { id, text, start, end, passage, title, metadata: JSON.parse(metadata), matches };
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

// Compares a file with its checksums.
function checkAll(db, sqlite) {
  const damage = db.selectValue(SQL.damage);
  if (damage) damaged(damage);
  db.exec(SQL.check_words);
  rowsOf(db, sqlite, SQL.check_documents).forEach(documentOf);
  for (const [number, document, start, end, crc] of rowsOf(db, sqlite, SQL.check_passages)) {
    if (crcOfPassage(document, start, end) !== crc) damaged(`passage ${number}`);
  }
  rowsOf(db, sqlite, SQL.blocks).forEach(blockOf);
}

/** The index in `source`: a URL, which `fetch` asks for, the file's bytes, or null for a new one. */
export async function openIndex(source, encoder, { sqlite, fetch = globalThis.fetch, check = true } = {}) {
  let bytes = source;
  if (typeof source === "string" || source instanceof URL) {
    const answer = await fetch(source);
    if (!answer.ok) throw new EncoderError(`${source}: status ${answer.status}`);
    bytes = new Uint8Array(await answer.arrayBuffer());
  }
  const found = await sqliteOf(sqlite), { capi, wasm, oo1 } = found, db = new oo1.DB(":memory:");
  const model = encoder && (await modelOf(encoder));
  try {
    if (bytes) {
      const copy = Uint8Array.from(bytes);
      copy.fill(1, 18, 20); // a file that was written with a write-ahead log, which a file in memory has not
      const place = wasm.allocFromTypedArray(copy), { SQLITE_DESERIALIZE_FREEONCLOSE: free, SQLITE_DESERIALIZE_RESIZEABLE: grow } = capi;
      db.checkRc(capi.sqlite3_deserialize(db.pointer, "main", place, copy.length, copy.length, free | grow));
    }
    db.exec("PRAGMA foreign_keys = ON; PRAGMA trusted_schema = OFF");
    if (db.selectValue("SELECT count(*) FROM sqlite_master")) {
      const [problem, kind] = db.selectArray(SQL.check, [encoder?.source ?? null]);
      if (kind === "version") throw new EncoderError(`the index: ${problem}`);
      if (check) checkAll(db, found);
      if (kind === "model") throw new OtherModel(problem);
    }
    return new SearchIndex(found, db, encoder, model);
  } catch (error) {
    db.close();
    if (error instanceof EncoderError) throw error;
    return damaged(error.message);
  }
}

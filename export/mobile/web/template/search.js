// Search by words and by meaning in the SQLite file of `msdc search` and `msdc.open_index`: the core's index, which Android
// and iOS have too, compiled to search.wasm. Texts are encoded here, asynchronously, between its calls.

import { Core, EncoderError } from "./msdc.js";

const BLOCK = 256; // documents of a transaction
const OPTIONS = 24; // bytes of msdc_index_options
const WASM = new URL("./search.wasm", import.meta.url);
const utf8 = new TextEncoder();
const modules = new Map(); // address -> the compiled module

/** An intact index of another model: opened without an encoder, `rebuild` encodes its documents again. */
export class OtherModel extends EncoderError {
  constructor(line) {
    super(line);
    this.name = "OtherModel";
  }
}

// The bytes of a URL; Node's fetch reads no files.
async function download(url, fetch = globalThis.fetch) {
  const fs = String(url).startsWith("file:") && globalThis.process?.getBuiltinModule?.("node:fs");
  if (fs) return fs.promises.readFile(new URL(url));
  const answer = await fetch(url);
  if (!answer.ok) throw new EncoderError(`${url}: status ${answer.status}`);
  return new Uint8Array(await answer.arrayBuffer());
}

// `wasm`: the address of search.wasm, its bytes, or its compiled module.
async function compiled(wasm) {
  if (wasm instanceof WebAssembly.Module) return wasm;
  if (typeof wasm !== "string" && !(wasm instanceof URL)) return WebAssembly.compile(wasm);
  const url = new URL(wasm, globalThis.location?.href).href;
  if (!modules.has(url)) modules.set(url, download(url).then((bytes) => WebAssembly.compile(bytes)));
  try {
    return await modules.get(url);
  } catch (error) {
    modules.delete(url);
    throw new EncoderError(`${url}: no search.wasm (${error.message}): serve it next to search.js, or pass {wasm}, its address`);
  }
}

class IndexCore extends Core {
  #models = new Map(); // encoder -> the address of its msdc_index_model
  #count = 0;

  // Read an encoder's tokenizer, for `model`.
  async load(encoder) {
    if (!encoder || this.#models.has(encoder)) return;
    const files = Object.entries(await encoder.tokenizerFiles()), folder = `model${this.#count++}`;
    if (this.#models.has(encoder)) return; // by another call meanwhile
    for (const [name, bytes] of files) this.file(`${folder}/${name}`, bytes);
    this.call("tokenizer_open", utf8.encode(`${folder}\0`), 0, this.out);
    const tokenizer = this.number(), paths = files.map(([name]) => `${folder}/${name}`);
    this.#models.set(encoder, { address: this.put(Uint32Array.of(0, tokenizer)), tokenizer, paths });
  }

  // 0 without an encoder, or where it was released.
  model(encoder) {
    return this.#models.get(encoder)?.address ?? 0;
  }

  // The tokenizers of all encoders but one.
  release(encoder) {
    for (const [other, { address, tokenizer, paths }] of this.#models) {
      if (other === encoder) continue;
      this.#models.delete(other);
      this.end("msdc_tokenizer_close", tokenizer);
      this.end("free", address);
      for (const path of paths) this.file(path, new Uint8Array(0));
    }
  }
}

// --- documents and filters ----------------------------------------------------------------------------------------------

// One value (a text, a number, a document) is never taken apart.
const oneOrMore = (values) => (typeof values === "string" || !values?.[Symbol.iterator] ? [values] : values);
const isRecord = (value) => Object(value) === value && !Array.isArray(value) && !(value instanceof Date);
const isPlain = (value) => ["string", "boolean"].includes(typeof value) || Number.isFinite(value);
const TEXT = /[^\s\x1c-\x1f\x85]|\ufeff/; // blanks are those of Python

function requireText(text, what) {
  if (typeof text !== "string") throw new TypeError(`${what} is not a text`);
  if (/\p{Surrogate}/u.test(text)) throw new TypeError(`${what} has half of a surrogate pair`);
  return text;
}

// JSON without what JSON cannot hold; SQLite reads it up to a NUL character.
function json(value) {
  return JSON.stringify(value, function (name, member) {
    if (this[name] instanceof Date && member === null) throw new TypeError(`${name} is an invalid date`);
    if ([name, member].some((text) => typeof text === "string" && /\0|\p{Surrogate}/u.test(text))) {
      throw new TypeError("half of a surrogate pair or a NUL character in an id, a value or a filter");
    }
    if (typeof member === "number" && !Number.isFinite(member)) {
      throw new TypeError(`${name} is ${member}, which JSON cannot hold`);
    }
    return member;
  });
}

function documentOf(row, number) {
  const { id = null, text, title = "", ...values } = typeof row === "string" ? { text: row } : row;
  const what = id === null ? `document ${number + 1}` : `document ${id}`;
  if (!TEXT.test(requireText(text, what))) throw new TypeError(`${what} has no text`);
  const metadata = json(Object.fromEntries(Object.entries(values).sort(([a], [b]) => (a < b ? -1 : 1))));
  return { id: id === null ? null : requireText(String(id), what), text, title: requireText(title, what), metadata };
}

// A value of a filter, or its bounds as [least, most]; undefined if it is neither.
function alternative(value) {
  if (value === null) return null;
  const { least = null, most = null, ...others } = isRecord(value) ? value : { least: value, most: value };
  const sides = [least, most].map((side) => (side instanceof Date ? side.toISOString() : side));
  const arePlain = sides.some(isPlain) && sides.every((side) => side === null || isPlain(side));
  if (Object.keys(others).length || !arePlain) return undefined;
  return isRecord(value) ? sides : sides[0];
}

// Conditions as the core takes them: [[column, [alternative, ...], excluded], ...].
function conditions(where) {
  return json(Object.entries(where).map(([name, required]) => {
    const excluded = isRecord(required) && Object.keys(required).join() === "not", values = excluded ? required.not : required;
    const alternatives = (Array.isArray(values) ? values : [values]).map(alternative);
    if (!alternatives.includes(undefined)) return [name, alternatives, excluded];
    throw new RangeError(`filter ${name}: expected a value, null, { least, most }, a list of them, or { not: them }`);
  }));
}

// --- the index ----------------------------------------------------------------------------------------------------------

/** Documents that are found by words and by meaning. Made by `openIndex`. */
export class SearchIndex {
  #core;
  #index;
  #encoder;

  constructor(core, index, encoder) {
    this.#core = core;
    this.#index = index;
    this.#encoder = encoder;
  }

  get length() {
    return this.#read("index_state").documents;
  }

  async add(documents, options) {
    return this.#put(documents, false, options);
  }

  async update(documents, options) {
    return this.#put(documents, true, options);
  }

  remove(ids) {
    const keys = Array.from(oneOrMore(ids), (id) => requireText(String(id), "an id"));
    this.#core.call("index_remove", this.#index, JSON.stringify(keys), this.#core.out);
    return this.#core.number(0, "BigInt64");
  }

  ids() {
    return this.#read("index_ids");
  }

  get(id) {
    const found = this.#read("index_get", requireText(String(id), "the id"));
    return found && { ...JSON.parse(found.metadata), id: found.id, text: found.text, title: found.title };
  }

  async rebuild(encoder, { onProgress = () => {}, signal } = {}) {
    for (let count = 0; ; ) {
      signal?.throwIfAborted();
      await this.#core.load(encoder);
      this.#core.call("index_rebuild", this.#index, this.#core.model(encoder), this.#core.out);
      const batch = this.#core.number();
      if (!batch) {
        this.#encoder = encoder;
        this.#core.release(encoder);
        return count;
      }
      const { written, done, total } = await this.#write(batch, encoder, signal);
      count += written;
      if (written) onProgress({ done, total });
    }
  }

  async search(query, { where = {}, ...options } = {}) {
    requireText(query, "the query");
    const filter = Object.keys(where).length ? conditions(where) : null, encoder = this.#encoder;
    const request = JSON.stringify({ ...JSON.parse(json(options)), query, where: filter, offsets: "utf16" });
    if (options.mode === "vectors") this.#requireEncoder();
    await this.#core.load(encoder);
    const [text] = this.#core.texts("index_query", this.#index, this.#core.model(encoder), request);
    const vector = text === undefined ? null : await encoder.encode(text);
    if (vector && encoder !== this.#encoder) throw new OtherModel("index: rebuilt with another model meanwhile");
    return this.#read("index_search", request, vector ?? 0, vector?.length ?? 0).map(({ metadata, ...hit }) =>
      ({ ...hit, passage: hit.text.slice(hit.start, hit.end), metadata: JSON.parse(metadata) }));
  }

  compact() {
    this.#core.call("index_compact", this.#index);
  }

  check() {
    this.#core.call("index_check", this.#index);
  }

  bytes() {
    return this.#core.call("index_bytes", this.#index, this.#core.receiver, 0)[0];
  }

  close() {
    this.#core.close();
  }

  // What a call gives as JSON; null where it gives nothing.
  #read(name, ...values) {
    const [text] = this.#core.texts(name, this.#index, ...values);
    return text === undefined ? null : JSON.parse(text);
  }

  #requireEncoder() {
    if (!this.#encoder) throw new TypeError("the index was opened without an encoder, which only words need not");
    return this.#encoder;
  }

  async #put(given, replaces, { onProgress = () => {}, signal } = {}) {
    const documents = Array.from(oneOrMore(given), documentOf), total = documents.length, encoder = this.#requireEncoder();
    for (let done = 0; done < total; onProgress({ done, total })) {
      signal?.throwIfAborted();
      const block = JSON.stringify(documents.slice(done, done + BLOCK));
      await this.#core.load(encoder);
      this.#core.call("index_documents", this.#index, this.#core.model(encoder), block, replaces, this.#core.out);
      await this.#write(this.#core.number(), encoder, signal);
      done = Math.min(done + BLOCK, total);
    }
    return total;
  }

  // Encodes the texts of a batch and writes it, in one transaction.
  async #write(batch, encoder, signal) {
    const core = this.#core;
    try {
      const texts = core.texts("index_texts", batch), vectors = texts.length ? await encoder.encode(texts, { signal }) : [];
      const width = vectors[0]?.length ?? 0, rows = new Float32Array(vectors.length * width);
      vectors.forEach((vector, row) => rows.set(vector, row * width));
      core.call("index_write", this.#index, batch, rows, vectors.length, width, core.out);
      const [written, done, total] = [0, 8, 16].map((at) => core.number(at, "BigInt64"));
      return { written, done, total };
    } finally {
      core.end("msdc_index_batch_close", batch);
    }
  }
}

/** The index in `source`: a URL, which `fetch` asks for, the file's bytes, or null for a new one. */
export async function openIndex(source, encoder, { wasm = WASM, fetch, check = true } = {}) {
  const isAddress = typeof source === "string" || source instanceof URL;
  const bytes = isAddress ? await download(source, fetch) : (source ?? new Uint8Array(0));
  const core = await IndexCore.start(await compiled(wasm), "index", { 8: OtherModel }); // MSDC_OTHER_MODEL
  await core.load(encoder);
  const at = bytes.length ? core.put(bytes) : 0;
  core.call("index_open", 0, Uint32Array.of(OPTIONS, 0, check, 0, at, bytes.length), core.model(encoder), core.out);
  const index = core.number();
  core.end("free", at);
  return new SearchIndex(core, index, encoder);
}

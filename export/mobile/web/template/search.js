// Search by words and by meaning in the SQLite file of `msdc search` and `msdc.open_index`: the core's index, which Android
// and iOS have too, compiled to search.wasm. Texts are encoded here, asynchronously, between its calls.

import { EncoderError, fileNames, IndexCore, indexFolder, WorkerLink } from "./msdc.js";

const BLOCK = 256; // documents of a transaction
const TRIES = 50; // ten a second
const PROBE = JSON.stringify({ query: "a", mode: "words" }); // compares the model
const [INDEX, MODEL, RECEIVER, OUT] = ["index", "model", "receiver", "out"].map((slot) => ({ slot })); // of IndexCore.run
const WASM = new URL("./search.wasm", import.meta.url);
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
const modules = new Map(); // address -> the compiled module

const statusError = (name) => ({ [name]: class extends EncoderError { name = name } })[name];
/** An intact index of another model: opened without an encoder, `rebuild` encodes its documents again. */
export const OtherModel = statusError("OtherModel");
/** The index's file is damaged. */
export const Damaged = statusError("Damaged");
/** The browser's storage is full. */
export const Full = statusError("Full");
/** The index can only be read here. */
export const ReadOnly = statusError("ReadOnly");

const ERRORS = { 2: Damaged, 8: OtherModel, 11: Full, 12: ReadOnly }; // by the core's status

// A file's tab was closed during a request.
class Lost extends Error {}

function typed({ status, name, line, message = line }) {
  if (name === "RangeError") return new RangeError(message);
  return new (ERRORS[status] ?? EncoderError)(message);
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

// An index in this thread's memory.
class Memory {
  constructor(core) {
    this.core = core;
  }

  async run(name, values, { encoder } = {}) {
    if (encoder && !this.core.has(encoder.source)) this.core.load(encoder.source, await encoder.tokenizerFiles());
    try {
      return this.core.run(name, values, encoder?.source);
    } catch (error) {
      throw error.status ? typed(error) : error;
    }
  }

  async end(name, address) {
    this.core.end(name, address);
  }

  async release(source) {
    this.core.release(source);
  }

  async content() {
    return (await this.run("index_bytes", [INDEX, RECEIVER])).received[0];
  }

  async close() {
    this.core.close();
  }
}

// An index in a file of the browser's storage, by way of a worker.
class Shared {
  constructor(link) {
    this.link = link;
  }

  ask(name, values, source, epoch) {
    return this.link.call("request", [{ name, values, source, epoch }], { report() {} });
  }

  // `epoch`: the tab that has the batch; `isRepeated`: ask again where the tab that has the file was closed.
  async run(name, values, { encoder, epoch, isRepeated = false } = {}) {
    for (;;) {
      const answer = await this.ask(name, values, encoder?.source, epoch);
      if (answer.error) throw typed(answer.error);
      if (answer.isUnread) await this.run("load", [encoder.source, await encoder.tokenizerFiles()], { isRepeated: true });
      else if (!answer.isLost) return answer;
      else if (!isRepeated) throw new Lost();
    }
  }

  // In vain where the tab was closed, and its memory with it.
  async end(name, address, epoch) {
    await this.ask("end", [name, address], undefined, epoch);
  }

  release(source) {
    return this.run("release", [source], { isRepeated: true });
  }

  async content() {
    return (await this.run("content", [], { isRepeated: true })).value;
  }

  async close() {
    await this.link.call("close", [], { report() {} });
    this.link.close();
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

// A filter as the core takes it: [[column, [alternative, ...], excluded], {"or": [filter, ...]}, {"not": [filter]}, ...].
function conditions(where) {
  return Object.entries(where).flatMap(([name, required]) => {
    const isFilter = (part) => isRecord(part) && !("least" in part || "most" in part);
    const filters = Array.isArray(required) && required.length > 0 && required.every(isFilter);
    if (name === "and" && filters) return required.flatMap(conditions);
    if (name === "or" && filters) return [{ or: required.map(conditions) }];
    if (name === "not" && isRecord(required)) return [{ not: [conditions(required)] }];
    const excluded = isRecord(required) && Object.keys(required).join() === "not", values = excluded ? required.not : required;
    const alternatives = (Array.isArray(values) ? values : [values]).map(alternative);
    if (!alternatives.includes(undefined)) return [[name, alternatives, excluded]];
    throw new RangeError(`filter ${name}: expected a value, null, { least, most }, a list of them, or { not: them }`);
  });
}

// A request of the core.
function requestOf(asked, { where = {}, order = [], boost = [], groupSize = 1, ...options }) {
  const filter = Object.keys(where).length ? json(conditions(where)) : null;
  const parts = boost.map(([part, bonus]) => [json(conditions(part)), bonus]);
  const others = JSON.parse(json({ group_size: groupSize, ...options, order: oneOrMore(order), boost: parts }));
  return JSON.stringify({ ...others, ...asked, where: filter, offsets: "utf16" });
}

// --- the index ----------------------------------------------------------------------------------------------------------

const textsOf = ({ received }) => received.map((bytes) => decoder.decode(bytes));
const numberOf = ({ numbers }, at = 0) => Number(new DataView(numbers.buffer).getBigInt64(at, true));
const batchOf = ({ numbers }) => new DataView(numbers.buffer).getUint32(0, true);

/** Documents that are found by words and by meaning. Made by `openIndex`. */
export class SearchIndex {
  #store;
  #encoder;

  constructor(store, encoder, storage, storageError = null) {
    this.#store = store;
    this.#encoder = encoder;
    Object.assign(this, { storage, storageError });
  }

  async count() {
    return (await this.#read("index_state")).documents;
  }

  async relevantCosine() {
    return (await this.#read("index_state")).relevant;
  }

  async add(documents, options) {
    return this.#put(documents, false, options);
  }

  async update(documents, options) {
    return this.#put(documents, true, options);
  }

  async remove(ids) {
    const keys = Array.from(oneOrMore(ids), (id) => requireText(String(id), "an id"));
    return numberOf(await this.#store.run("index_remove", [INDEX, JSON.stringify(keys), OUT], { isRepeated: true }));
  }

  async ids() {
    return this.#read("index_ids");
  }

  async get(id) {
    const found = await this.#read("index_get", [requireText(String(id), "the id")]);
    return found && { ...JSON.parse(found.metadata), id: found.id, text: found.text, title: found.title };
  }

  async rebuild(encoder, { onProgress = () => {}, signal } = {}) {
    for (let count = 0; ; ) {
      signal?.throwIfAborted();
      try {
        const answer = await this.#store.run("index_rebuild", [INDEX, MODEL, OUT], { encoder });
        if (!batchOf(answer)) {
          this.#encoder = encoder;
          await this.#store.release(encoder.source);
          return count;
        }
        const { written, done, total } = await this.#write(answer, encoder, signal);
        count += written;
        if (written) onProgress({ done, total });
      } catch (error) {
        if (!(error instanceof Lost)) throw error;
      }
    }
  }

  async search(query, options = {}) {
    const request = requestOf({ query: requireText(query, "the query") }, options), encoder = this.#encoder;
    if (options.mode === "vectors") this.#requireEncoder();
    const [text] = textsOf(await this.#store.run("index_query", [INDEX, MODEL, request, RECEIVER], { encoder, isRepeated: true }));
    return this.#hits(request, text === undefined ? null : await encoder.encode(text), encoder);
  }

  async similar(id, options = {}) {
    return this.#hits(requestOf({ like: requireText(String(id), "the id") }, options), null, null);
  }

  async #hits(request, vector, encoder) {
    return (await this.#read("index_search", [request, vector ?? 0, vector?.length ?? 0], encoder)).map(({ metadata, ...hit }) =>
      ({ ...hit, passage: hit.text.slice(hit.start, hit.end), metadata: JSON.parse(metadata) }));
  }

  async compact() {
    await this.#store.run("index_compact", [INDEX], { isRepeated: true });
  }

  async check() {
    await this.#store.run("index_check", [INDEX], { isRepeated: true });
  }

  async bytes() {
    return this.#store.content();
  }

  async close() {
    await this.#store.close();
  }

  // What a call gives as JSON; null where it gives nothing.
  async #read(name, values = [], encoder = null) {
    const [text] = textsOf(await this.#store.run(name, [INDEX, ...values, RECEIVER], { encoder, isRepeated: true }));
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
      const block = documents.slice(done, done + BLOCK);
      await this.#putBlock(block, replaces, encoder, signal);
      done += block.length;
    }
    return total;
  }

  async #putBlock(block, replaces, encoder, signal) {
    const values = [INDEX, MODEL, JSON.stringify(block), replaces, OUT];
    for (let batch; ; ) {
      try {
        batch = await this.#store.run("index_documents", values, { encoder, isRepeated: true });
        return void (await this.#write(batch, encoder, signal));
      } catch (error) {
        if (!(error instanceof Lost)) throw error;
        if (error.isBefore || (replaces && block.every(({ id }) => id !== null))) continue;
        // The block may have been written, or not.
        const { id, text } = block.find(({ id }) => id !== null) ?? {};
        if (replaces || id === undefined) {
          throw new EncoderError("the tab that wrote these documents was closed: those without ids may be there, or not");
        }
        if ((await this.get(id))?.text === text) return;
      }
    }
  }

  // Encodes the texts of a batch and writes it, in one transaction.
  async #write(answer, encoder, signal) {
    const store = this.#store, batch = batchOf(answer), { epoch } = answer;
    let isBefore = true;
    try {
      const texts = textsOf(await store.run("index_texts", [batch, RECEIVER], { epoch }));
      const vectors = texts.length ? await encoder.encode(texts, { signal }) : [];
      const width = vectors[0]?.length ?? 0, rows = new Float32Array(vectors.length * width);
      vectors.forEach((vector, row) => rows.set(vector, row * width));
      isBefore = false;
      const written = await store.run("index_write", [INDEX, batch, rows, vectors.length, width, OUT], { epoch });
      return { written: numberOf(written), done: numberOf(written, 8), total: numberOf(written, 16) };
    } catch (error) {
      throw error instanceof Lost ? Object.assign(error, { isBefore }) : error;
    } finally {
      await store.end("msdc_index_batch_close", batch, epoch);
    }
  }
}

const memoryOf = async (module, encoder, options, ...storage) => {
  const core = await IndexCore.start(module, "index"), store = new Memory(core);
  if (encoder) core.load(encoder.source, await encoder.tokenizerFiles());
  try {
    core.open({ ...options, source: encoder?.source });
  } catch (error) {
    throw error.status ? typed(error) : error;
  }
  return new SearchIndex(store, encoder, ...storage);
};

// Why an index cannot last here; null where it can.
function missing() {
  if (!globalThis.navigator?.storage?.getDirectory) return "no file system of the origin (https and localhost have one)";
  if (!navigator.locks || typeof BroadcastChannel !== "function") return "no locks between tabs";
  return typeof Worker === "function" ? null : "no workers";
}

// The bytes of a lasting index, between two of its transactions.
async function copyOf(name) {
  const bytes = async (file) => (await (await (await indexFolder(false)).getFileHandle(file)).getFile()).arrayBuffer();
  for (let tries = 0; ; ++tries) {
    try {
      const [file, journal] = fileNames(name), before = await bytes(journal), content = await bytes(file);
      if (!before.byteLength && !(await bytes(journal)).byteLength) return new Uint8Array(content);
    } catch (error) {
      if (error.name === "NotFoundError") throw new EncoderError(`${name}: no such index`);
      if (tries === TRIES) throw new EncoderError(`${name}: not read (${error.message})`);
    }
    if (tries === TRIES) throw new EncoderError(`${name}: its writing was interrupted; open it in a page`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

function requireName(name) {
  if (typeof name !== "string" || !/^[^\0]{1,100}$/u.test(name)) throw new TypeError("the name of an index has 1 to 100 characters");
}

/** Delete the index of a name, which no tab has open. */
export async function deleteIndex(name) {
  requireName(name);
  const reason = missing();
  if (reason) throw new EncoderError(`${name}: ${reason}`);
  await navigator.locks.request(`msdc-index-${name}`, { ifAvailable: true }, async (lock) => {
    if (!lock) throw new EncoderError(`${name}: a tab has it open`);
    const folder = await indexFolder(true);
    for (const file of fileNames(name)) {
      await folder.removeEntry(file).catch((error) => {
        if (error.name !== "NotFoundError") throw error;
      });
    }
  });
}

async function openNamed(name, encoder, module, check) {
  requireName(name);
  if (typeof ServiceWorkerGlobalScope === "function") {
    return memoryOf(module, encoder, { bytes: await copyOf(name), check, isReadOnly: true }, "copy");
  }
  let reason = missing();
  if (!reason) {
    const link = new WorkerLink(true), store = new Shared(link);
    const { unavailable } = await link.call("openIndex", [{ name, module, check }], { report() {} });
    reason = unavailable;
    if (!reason) {
      const index = new SearchIndex(store, encoder, "file");
      try {
        await store.run("index_query", [INDEX, MODEL, PROBE, RECEIVER], { encoder, isRepeated: true });
        return index;
      } catch (error) {
        await index.close();
        throw error;
      }
    }
    link.close();
  }
  return memoryOf(module, encoder, { bytes: new Uint8Array(0) }, "memory", reason);
}

/** The index in `source`: a URL, which `fetch` asks for, the file's bytes, null for a new one, or {name}: one that lasts. */
export async function openIndex(source, encoder, { wasm = WASM, fetch, check = true } = {}) {
  const isAddress = typeof source === "string" || source instanceof URL, isNamed = isRecord(source) && "name" in source;
  if (isNamed && !isAddress) return openNamed(source.name, encoder, await compiled(wasm), check);
  const bytes = isAddress ? await download(source, fetch) : (source ?? new Uint8Array(0));
  return memoryOf(await compiled(wasm), encoder, { bytes, check }, "memory");
}

// The public interface.

import { builtin, EncoderError } from "./bytes.js";
import { fileNames, IndexCore, indexFolder } from "./index_host.js";
import { HereLink, WorkerLink } from "./link.js";

// An option with a mistyped name would be ignored.
function known(options, ...names) {
  const other = Object.keys(options).find((name) => !names.includes(name));
  if (other !== undefined) throw new TypeError(`option ${other} is unknown; known: ${names.join(", ")}`);
  return options;
}

// What addresses are relative to; a frame without an address of its own has its parent's.
const pageAddress = () => globalThis.document?.baseURI ?? globalThis.location?.href;

// The folder's address, and the query that goes with each of its files: a signature.
function folderOf(url) {
  const node = pageAddress() ? undefined : builtin("node:url");
  let address;
  try {
    // A path, also one that begins with the letter of a disk.
    const isPath = node && !/^[a-z][a-z+.-]+:/i.test(url);
    address = isPath ? node.pathToFileURL(String(url)) : new URL(url, pageAddress());
    address.pathname = address.pathname.replace(/\/(bundle\.json)?$/, "") + "/";
    new URL("file", address.href); // data: has no files
  } catch {
    throw new EncoderError(`${url}: not a web address; outside a page the bundle's folder is named by its whole URL`);
  }
  if (address.username || address.password) throw new EncoderError("a name or password in the bundle's address: pass {headers}");
  const query = address.search;
  address.search = address.hash = "";
  return { folder: address.href, query };
}

function requireText(text, what) {
  if (typeof text !== "string") throw new TypeError(`${what} is not a string`);
  if (/\p{Surrogate}/u.test(text)) throw new TypeError(`${what} has half of a surrogate pair`);
}

// One text gives one answer, a list of texts a list.
async function each(texts, { prompt }, work) {
  const list = Array.isArray(texts) ? texts : [texts];
  // Holes too, which forEach leaves out.
  for (const [i, text] of list.entries()) requireText(text, `text ${i + 1}`);
  if (prompt !== undefined) requireText(prompt, "the prompt");
  const found = await work(list);
  return list === texts ? found : found[0];
}

/** A sentence encoder: texts in, vectors out. Made by `Encoder.load`. */
export class Encoder {
  static async load(url, options = {}) {
    known(options, "sha256", "runtime", "threads", "cache", "headers", "fetch", "worker", "signal", "onProgress");
    const { sha256, threads, cache, headers, fetch, signal, onProgress: report = () => {} } = options;
    const source = { ...folderOf(url), ...(headers && { headers: Object.fromEntries(new Headers(headers)) }) };
    let { runtime, worker } = options;
    const isModule = typeof runtime === "object" && runtime !== null && !("href" in runtime);
    if (runtime && !isModule) runtime = new URL(runtime, pageAddress() ?? source.folder).href;
    // Test environments have documents without workers.
    worker ??= typeof document === "object" && typeof Worker === "function" && !isModule;
    if (worker && isModule) {
      throw new TypeError("a runtime that is a module stays in its thread: pass its address, or {worker: false}");
    }
    if (worker && typeof Worker !== "function") {
      throw new EncoderError("no workers here (a service worker, Node): pass {worker: false}");
    }
    if (fetch !== undefined && typeof fetch !== "function") throw new TypeError("fetch is not a function");
    const link = worker ? new WorkerLink(worker, fetch) : new HereLink(fetch);
    try {
      const facts = await link.call("open", [source, { sha256, runtime, threads, cache }], { signal, report });
      return new Encoder(link, facts);
    } catch (error) {
      link.close();
      throw error;
    }
  }

  /** Remove every file that any bundle left in this origin's cache. */
  static async clearCache() {
    return typeof caches === "object" && caches.delete("msdc");
  }

  #link;

  constructor(link, facts) {
    this.#link = link;
    Object.assign(this, facts);
  }

  async encode(texts, { signal, onProgress = () => {}, ...options } = {}) {
    known(options, "prompt", "promptName", "truncateDim");
    return each(texts, options, async (list) => {
      const { values, width } = await this.#link.call("encode", [list, options], { signal, report: onProgress });
      // Copies: a vector that is kept, cloned or sent must not bring all others with it.
      return list.map((_, i) => values.slice(i * width, (i + 1) * width));
    });
  }

  async tokenize(texts, options = {}) {
    known(options, "prompt", "promptName", "maxLength");
    return each(texts, options, (list) => this.#link.call("tokenize", [list, options], { report: () => {} }));
  }

  async tokenizerFiles() {
    return this.#link.call("tokenizerFiles", [], { report: () => {} });
  }

  async countTruncated(texts, options = {}) {
    known(options, "prompt", "promptName");
    const list = Array.isArray(texts) ? texts : [texts];
    return each(list, options, () => this.#link.call("countTruncated", [list, options], { report: () => {} }));
  }

  async selfTest({ signal, ...options } = {}) {
    known(options, "signal");
    return this.#link.call("selfTest", [{}], { signal, report: () => {} });
  }

  close() {
    this.#link.close();
  }
}

/** Cosine of two vectors; 0 where one of them is zero. */
export function similarity(a, b) {
  if (a.length !== b.length) throw new RangeError(`vectors of ${a.length} and ${b.length} numbers`);
  let dot = 0, aa = 0, bb = 0;
  for (let i = 0; i < a.length; ++i) {
    dot += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return aa === 0 || bb === 0 ? 0 : dot / Math.sqrt(aa * bb);
}

/** The `k` vectors nearest to `query`, best first; at a tie the first. */
export function topK(query, vectors, k = 10) {
  const hits = vectors.map((vector, row) => ({ row, cosine: similarity(query, vector) }));
  const worst = (cosine) => (Number.isNaN(cosine) ? -Infinity : cosine);
  return hits.sort((a, b) => worst(b.cosine) - worst(a.cosine) || a.row - b.row).slice(0, k);
}

export { EncoderError };
// For search.js.
export { fileNames, IndexCore, indexFolder, WorkerLink };

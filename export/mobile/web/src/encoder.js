// The public interface. This module is also the worker's script: see the last lines.

import { builtin } from "./bundle.js";
import { EncoderError } from "./bytes.js";
import { Engine } from "./engine.js";

const WORKER_NAME = "msdc-encoder";

// Calls an engine in this thread.
class HereLink {
  async call(method, args, hooks) {
    const engine = await Engine.open(...args, hooks);
    this.call = (name, values, more) => engine[name](...values, more);
    return engine.facts();
  }

  close() {
    this.call = async () => closed();
  }
}

function closed() {
  throw new EncoderError("the encoder is closed");
}

// Calls an engine in a worker. Errors, progress and cancellation cross as plain messages.
class WorkerLink {
  constructor() {
    this.worker = new Worker(new URL("./msdc.js", import.meta.url), { type: "module", name: WORKER_NAME });
    this.waiting = new Map();
    this.count = 0;
    this.worker.onmessage = ({ data: { id, progress, error, result } }) => {
      const call = this.waiting.get(id);
      if (progress) return call?.report(progress);
      this.waiting.delete(id);
      if (!error) return call?.resolve(result);
      const kinds = { EncoderError, RangeError, TypeError };
      if (error.name === "AbortError") return call?.reject(call.signal?.reason ?? new DOMException(error.message, "AbortError"));
      call?.reject(Object.assign(new (kinds[error.name] ?? Error)(error.message), { name: error.name }));
    };
    // Without a message the script itself was not there: bundlers other than Vite and webpack do not copy it.
    const absent = "msdc.js is not next to the page's script; copy it there from the bundle's web/, or pass {worker: false}";
    this.worker.onerror = (event) => this.close(new EncoderError(`the worker failed: ${event.message ?? absent}`));
  }

  call(method, args, { signal, report }) {
    if (this.ended) return Promise.reject(this.ended);
    signal?.throwIfAborted();
    const id = ++this.count;
    const cancel = () => this.worker.postMessage({ id, cancel: true });
    const answer = new Promise((resolve, reject) => this.waiting.set(id, { resolve, reject, report, signal }));
    this.worker.postMessage({ id, method, args });
    signal?.addEventListener("abort", cancel);
    return answer.finally(() => signal?.removeEventListener("abort", cancel));
  }

  close(error = new EncoderError("the encoder is closed")) {
    this.ended = error;
    this.worker.terminate();
    for (const call of this.waiting.values()) call.reject(error);
    this.waiting.clear();
  }
}

function serve(scope) {
  const running = new Map();
  let engine;
  scope.onmessage = async ({ data: { id, method, args, cancel } }) => {
    if (cancel) return running.get(id)?.abort();
    const control = new AbortController();
    running.set(id, control);
    const hooks = { signal: control.signal, report: (progress) => scope.postMessage({ id, progress }) };
    try {
      let result;
      if (method === "open") {
        engine = await Engine.open(...args, hooks);
        result = engine.facts();
      } else result = await engine[method](...args, hooks);
      scope.postMessage({ id, result }, ArrayBuffer.isView(result?.values) ? [result.values.buffer] : []);
    } catch (error) {
      scope.postMessage({ id, error: { name: error?.name, message: String(error?.message ?? error) } });
    } finally {
      running.delete(id);
    }
  };
}

// An option with a mistyped name would be ignored.
function known(options, ...names) {
  const other = Object.keys(options).find((name) => !names.includes(name));
  if (other !== undefined) throw new TypeError(`option ${other} is unknown; known: ${names.join(", ")}`);
  return options;
}

function folderUrl(url) {
  const folder = String(url).endsWith("/") ? url : `${url}/`;
  const node = globalThis.location ? undefined : builtin("node:url");
  // A path, also one that begins with the letter of a disk.
  if (node && !/^[a-z][a-z+.-]+:/i.test(folder)) return node.pathToFileURL(folder).href;
  try {
    return new URL(folder, globalThis.location?.href).href;
  } catch {
    throw new EncoderError(`${url}: not a web address; outside a page the bundle's folder is named by its whole URL`);
  }
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
  static async load(url, { signal, onProgress = () => {}, worker = typeof document === "object", ...options } = {}) {
    known(options, "sha256", "runtime", "threads", "cache");
    const base = folderUrl(url);
    if (options.runtime) options.runtime = new URL(options.runtime, globalThis.location?.href ?? base).href;
    const link = worker ? new WorkerLink() : new HereLink();
    try {
      return new Encoder(link, await link.call("open", [base, options], { signal, report: onProgress }));
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

if (typeof WorkerGlobalScope === "function" && globalThis.name === WORKER_NAME) serve(globalThis);

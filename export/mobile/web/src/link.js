// Calls to an engine: in this thread, or in a worker, across a MessagePort.

import { EncoderError, lineOf } from "./bytes.js";
import { download, untilAborted } from "./download.js";
import { Engine } from "./engine.js";
import { IndexHost } from "./index_host.js";

const GREETING = "encoder";
const SILENCE_S = 60; // of a worker, until it is taken for one without this module
const NOT_LOADED = "its script is not there, or a content security policy (worker-src) forbids it";
const ADVICE = "pass {worker: false}, or as {worker} a Worker that your own script makes and whose script imports msdc.js";

export const closedError = () => new EncoderError("the encoder is closed");

// Calls an engine in this thread.
export class HereLink {
  #engine;

  constructor(fetch) {
    this.fetch = fetch;
  }

  async call(method, args, hooks) {
    if (this.ended) throw this.ended;
    if (method !== "open") return this.#engine[method](...args, hooks);
    const [source, options] = args, ask = (url, init) => download(url, init, this.fetch);
    this.#engine = await Engine.open({ ...source, ask }, options, hooks);
    return this.#engine.facts();
  }

  close() {
    this.ended = closedError();
    this.#engine?.close();
  }
}

// One side of a port: each side calls functions of the other. Errors cross as their name and message.
class Side {
  #waiting = new Map();
  #count = 0;

  constructor(port, functions) {
    this.port = port;
    port.onmessage = async ({ data: { id, name, args, answer, result, error } }) => {
      if (answer !== undefined) {
        const call = this.#waiting.get(answer);
        this.#waiting.delete(answer);
        return error ? call?.reject(received(error)) : call?.resolve(result);
      }
      const reply = { answer: id };
      try {
        reply.result = await functions[name](...args);
      } catch (thrown) {
        reply.error = { name: thrown?.name, message: String(thrown?.message ?? thrown) };
      }
      const values = reply.result?.values; // vectors move; a list's is a method
      if (id !== undefined) port.postMessage(reply, ArrayBuffer.isView(values) ? [values.buffer] : []);
    };
  }

  // Without an answer.
  tell(name, ...args) {
    this.port.postMessage({ name, args });
  }

  call(name, ...args) {
    const id = ++this.#count;
    const answer = new Promise((resolve, reject) => this.#waiting.set(id, { resolve, reject }));
    this.port.postMessage({ id, name, args });
    return answer;
  }

  end(error) {
    this.port.close();
    for (const call of this.#waiting.values()) call.reject(error);
    this.#waiting.clear();
  }
}

function received({ name, message }) {
  const kinds = { EncoderError, RangeError, TypeError };
  return Object.assign(new (kinds[name] ?? Error)(message), { name });
}

// Vite and webpack write the address of the worker's script into this form. Turbopack's build would not end, as the script is
// its own worker: told to ignore that, it copies the script. Vite looks for the form only in scripts that have this text:
/* new Worker(new URL("./msdc.js", import.meta.url)) */
const usualWorker = () =>
  new Worker(/* turbopackIgnore: true */ new URL("./msdc.js", import.meta.url), { type: "module", name: "msdc-encoder" });

// What a bundler has written there.
function usualArguments() {
  const { Worker } = globalThis;
  let passed;
  globalThis.Worker = function (...args) {
    passed = args;
  };
  try {
    usualWorker();
  } finally {
    globalThis.Worker = Worker;
  }
  return passed;
}

let policy;

// Where a content security policy asks for trusted types, it has to allow this one.
function newWorker(address, options) {
  try {
    return new Worker(address, options);
  } catch (error) {
    if (!(error instanceof TypeError && globalThis.trustedTypes)) throw error;
  }
  try {
    policy ??= trustedTypes.createPolicy("msdc", { createScriptURL: (url) => url });
  } catch {
    throw new EncoderError("the content security policy has no `trusted-types msdc`");
  }
  return new Worker(policy.createScriptURL(address), options);
}

// Calls an engine in a worker.
export class WorkerLink {
  #side; // a promise
  #fail;
  #stop = () => {};
  #count = 0;
  #reports = new Map(); // number of a call -> what takes its progress
  #downloads = new Map(); // number of a file that the worker asks the app's fetch for -> its download

  // `worker`: true for the module's own, a worker, or a function that makes one.
  constructor(worker, fetch) {
    this.fetch = fetch;
    this.#side = new Promise((resolve, reject) => {
      this.#fail = reject;
      (worker === true ? this.#start() : this.#greetOther(worker)).then(resolve, reject);
    });
    this.#side.catch(() => {}); // `call` reports it
  }

  async #greetOther(worker) {
    const isMade = typeof worker === "function";
    return this.#greet(isMade ? await worker() : worker, isMade, `{worker} did not start: ${NOT_LOADED}`);
  }

  async #start() {
    let refusal, script;
    try {
      return await this.#greet(usualWorker(), true, NOT_LOADED);
    } catch (error) {
      if (error.isFinal || this.ended) throw error;
      refusal = error;
    }
    try {
      const [url, options] = usualArguments(), { origin, href } = new URL(url, globalThis.location?.href);
      script = href;
      if (origin !== globalThis.origin) script += ", of another origin";
      // A page with an embedder policy starts no script without one, but that of a blob has the page's.
      if (origin !== globalThis.origin || globalThis.crossOriginIsolated) return await this.#greetBorrowed(href, options);
      if (refusal instanceof TypeError) return await this.#greet(newWorker(href, options), true, NOT_LOADED);
    } catch (error) {
      if (error.isFinal || this.ended) throw error;
      if (script) refusal = error;
    }
    throw new EncoderError(`the encoder's worker${script ? ` (${script})` : ""} did not start: ${lineOf(refusal)}; ${ADVICE}`);
  }

  // Browsers refuse a worker whose script is of another origin, but not one that imports such a script.
  async #greetBorrowed(script, options) {
    const name = JSON.stringify(script), line = options.type === "module" ? `import ${name};` : `importScripts(${name});`;
    // A frame without an origin starts no module from a blob, any other page none with its origin from data:.
    const isBlob = globalThis.origin !== "null", blob = () => new Blob([line], { type: "text/javascript" });
    const address = isBlob ? URL.createObjectURL(blob()) : `data:text/javascript,${encodeURIComponent(line)}`;
    try {
      const scheme = isBlob ? "blob:" : "data:";
      const forbidden = `missing CORS headers or a content security policy forbid it (worker-src needs ${scheme} and that origin)`;
      return await this.#greet(newWorker(address, options), true, forbidden);
    } finally {
      if (isBlob) URL.revokeObjectURL(address);
    }
  }

  // Hand a worker its end of a channel; it answers as soon as its script has run. `isOwn`: it ends with this link.
  #greet(worker, isOwn, absent) {
    if (typeof worker?.addEventListener !== "function") throw new TypeError("{worker} is not a Worker");
    if (this.ended) {
      if (isOwn) worker.terminate();
      throw this.ended;
    }
    const { port1, port2 } = new MessageChannel();
    return new Promise((resolve, reject) => {
      const fail = (line, isFinal) => {
        const error = Object.assign(new EncoderError(line), { isFinal });
        reject(error);
        if (timer) this.#stop(error);
        else if (isOwn) this.close(error);
      };
      const silent = () => fail(`no answer from the worker in ${SILENCE_S} s: its script has to import this bundle's msdc.js`, true);
      let timer = setTimeout(silent, 1000 * SILENCE_S); // until it has answered
      const ready = () => {
        clearTimeout(timer);
        timer = undefined;
        resolve(side);
      };
      const side = new Side(port1, { ...this.#services(), ready });
      this.#stop = (error) => {
        clearTimeout(timer);
        if (isOwn) worker.terminate();
        else side.tell("close");
        side.end(error);
      };
      // Without a message the script was not loaded; with one it ended, or fails later.
      worker.addEventListener("error", ({ message }) => fail(message ? `the worker failed: ${lineOf(message)}` : absent, Boolean(message)));
      worker.postMessage({ msdc: GREETING, port: port2 }, [port2]);
    });
  }

  // What the worker calls here.
  #services() {
    return {
      report: (number, step) => this.#reports.get(number)?.(step),
      fetch: async (number, url, init) => {
        const control = new AbortController(), entry = { control };
        this.#downloads.set(number, entry);
        entry.file = await download(url, { ...init, signal: control.signal }, this.fetch);
        if (control.signal.aborted) entry.file.cancel().catch(() => {}); // a fetch that does not listen to signals
        const { ok, status } = entry.file;
        return { ok, status };
      },
      read: async (number) => {
        const { done, value } = await this.#downloads.get(number).file.read();
        if (done) this.#downloads.delete(number);
        // A part of a larger buffer would cross with all of it.
        return { done, value: value?.byteLength < value?.buffer.byteLength ? value.slice() : value };
      },
      drop: (number) => this.#drop(number),
    };
  }

  #drop(number) {
    const { control, file } = this.#downloads.get(number) ?? {};
    this.#downloads.delete(number);
    control?.abort();
    file?.cancel().catch(() => {});
  }

  async call(method, args, { signal, report }) {
    signal?.throwIfAborted();
    const side = await untilAborted(this.#side, signal), number = ++this.#count;
    if (this.ended) throw this.ended;
    const cancel = () => side.tell("cancel", number);
    this.#reports.set(number, report);
    signal?.addEventListener("abort", cancel);
    if (signal?.aborted) cancel();
    try {
      const [source, ...more] = args;
      const passed = method === "open" ? [{ ...source, isAskedHere: Boolean(this.fetch) }, ...more] : args;
      return await side.call("run", number, method, passed);
    } catch (error) {
      throw error.name === "AbortError" && signal?.aborted ? signal.reason : error;
    } finally {
      signal?.removeEventListener("abort", cancel);
      this.#reports.delete(number);
    }
  }

  close(error = closedError()) {
    this.ended = error;
    this.#fail(error);
    this.#stop(error);
    for (const number of this.#downloads.keys()) this.#drop(number);
  }
}

// The other end of a WorkerLink.
function serve(port) {
  const running = new Map();
  let engine, files = 0;
  const side = new Side(port, {
    async run(number, method, args) {
      const control = new AbortController();
      const hooks = { signal: control.signal, report: (step) => side.tell("report", number, step) };
      running.set(number, control);
      try {
        if (method === "openIndex") return (engine = await IndexHost.open(...args)).facts();
        if (method !== "open") return await engine[method](...args, hooks);
        const [{ isAskedHere, ...source }, options] = args;
        engine = await Engine.open({ ...source, ask: isAskedHere ? askPage : download }, options, hooks);
        return engine.facts();
      } finally {
        running.delete(number);
      }
    },
    cancel: (number) => running.get(number)?.abort(),
    close() {
      for (const control of running.values()) control.abort();
      engine?.close();
      port.close();
    },
  });
  async function askPage(url, { signal, ...init }) {
    const number = ++files, drop = async () => side.tell("drop", number);
    signal?.addEventListener("abort", drop);
    const facts = await side.call("fetch", number, url, init);
    return { ...facts, read: () => side.call("read", number), cancel: drop };
  }
  side.tell("ready");
}

// In a worker this module waits for a page; an app's own messages pass.
if (typeof DedicatedWorkerGlobalScope === "function" && globalThis instanceof DedicatedWorkerGlobalScope) {
  addEventListener("message", (event) => {
    if (event.data?.msdc !== GREETING) return;
    event.stopImmediatePropagation();
    serve(event.data.port);
  });
}

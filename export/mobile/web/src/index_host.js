// The core's search index: in memory, or in a file of the browser's storage, which all tabs of an origin share.

import { EncoderError, lineOf, utf8 } from "./bytes.js";
import { Core } from "./core.js";

const OPTIONS = 24; // bytes of msdc_index_options
const DAMAGED = 2, OTHER_MODEL = 8; // statuses of the core
const REBUILT = "index: of another model than this encoder, or rebuilt with another one meanwhile";
const FAILED = 10, FULL = 13; // codes of SQLite
const FOLDER = "msdc-indexes", PAGE = 512; // bytes of SQLite's smallest page
const RETRY_MS = 50, RETRY_S = 30; // files of a page that was closed or reloaded stay open for a while

/** The name of an index's file in the browser's storage, and of its journal. */
export const fileNames = (name) => ["sqlite", "sqlite-journal"].map((end) => `${encodeURIComponent(name)}.${end}`);
export const indexFolder = async (create) => (await navigator.storage.getDirectory()).getDirectoryHandle(FOLDER, { create });

export class IndexCore extends Core {
  #models = new Map(); // sha256 of a model -> its tokenizer
  #count = 0;
  #reader = ""; // the model with which the index is open
  #path;

  // `bytes` are those of an index in memory; `path` is a file that the imports have open.
  open({ bytes, path, source = "", check = true, isReadOnly = false }) {
    const at = bytes?.length ? this.put(bytes) : 0, options = Uint32Array.of(OPTIONS, isReadOnly, check, 0, at, bytes?.length ?? 0);
    try {
      this.call("index_open", path ? utf8(`${path}\0`) : 0, options, this.#model(source), this.out);
    } finally {
      this.end("free", at);
    }
    [this.index, this.#path, this.#reader] = [this.number(), path, source];
  }

  // An index without a model takes one with the first call that has one.
  #attach(source) {
    if (!this.#path || this.#reader || !source) return;
    this.end("msdc_index_close", this.index);
    try {
      this.open({ path: this.#path, source, check: false });
    } catch (error) {
      this.open({ path: this.#path, check: false });
      throw error;
    }
  }

  has(source) {
    return this.#models.has(source);
  }

  // Read a model's tokenizer, of `files` by name.
  load(source, files) {
    if (this.has(source)) return;
    const folder = `model${this.#count++}`, paths = Object.keys(files).map((name) => `${folder}/${name}`);
    Object.values(files).forEach((bytes, row) => this.file(paths[row], bytes));
    this.call("tokenizer_open", utf8(`${folder}\0`), 0, this.out);
    const tokenizer = this.number();
    this.#models.set(source, { address: this.put(Uint32Array.of(0, tokenizer)), tokenizer, paths });
  }

  #model(source) {
    if (source && !this.has(source)) throw new EncoderError("the tokenizer was released meanwhile");
    return source ? this.#models.get(source).address : 0;
  }

  // Close the tokenizers of all models but one, with which the index is open from now on.
  release(source) {
    this.#reader = source;
    for (const [other, { address, tokenizer, paths }] of this.#models) {
      if (other === source) continue;
      this.#models.delete(other);
      this.end("msdc_tokenizer_close", tokenizer);
      this.end("free", address);
      for (const path of paths) this.file(path, new Uint8Array(0));
    }
  }

  // Call msdc_NAME: {slot} stands for the index, the model of `source`, the receiver of bytes and where numbers are written,
  // which it returns.
  run(name, values, source) {
    if (name !== "index_rebuild") {
      this.#attach(source);
      if (source && source !== this.#reader) throw Object.assign(new EncoderError(REBUILT), { status: OTHER_MODEL });
    }
    const slots = { index: () => [this.index], model: () => [this.#model(source)], receiver: () => [this.receiver, 0], out: () => [this.out] };
    const received = this.call(name, ...values.flatMap((value) => slots[value?.slot]?.() ?? [value]));
    return { received, numbers: this.read() };
  }
}

// What the core asks of files: synchronous handles of the file and its journal.
const filesOf = (handles) => (memory) => {
  const attempt = (work) => {
    try {
      return work();
    } catch (error) {
      return error.name === "QuotaExceededError" ? FULL : FAILED;
    }
  };
  const part = (at, size) => memory().subarray(at, at + size);
  return {
    size: (row) => handles[row].getSize(),
    read: (row, to, size, at) => {
      try {
        return handles[row].read(part(to, size), { at });
      } catch {
        return -1;
      }
    },
    write: (row, from, size, at) => attempt(() => (handles[row].write(part(from, size), { at }) === size ? 0 : FULL)),
    truncate: (row, size) => attempt(() => handles[row].truncate(size) ?? 0),
    flush: (row) => attempt(() => handles[row].flush() ?? 0),
  };
};

// In each tab's worker; the one that holds the origin's lock has the file open and answers the others.
export class IndexHost {
  #id = crypto.randomUUID();
  #pending = new Map(); // number of a request to the tab that has the file -> what takes the answer
  #count = 0;
  #handles = [];

  // Waits until a tab has the file open; an answer with `unavailable` says why none can.
  static async open({ name, module, check }) {
    const host = new IndexHost();
    try {
      if (typeof FileSystemFileHandle.prototype.createSyncAccessHandle !== "function") throw new Error("no synchronous access to files");
      host.folder = await indexFolder(true);
    } catch (error) {
      host.unavailable = lineOf(error);
      return host;
    }
    Object.assign(host, { name, module, check, channel: new BroadcastChannel(`msdc-index-${name}`) });
    const present = new Promise((resolve) => (host.arrived = resolve));
    host.channel.onmessage = ({ data }) => host.#receive(data);
    navigator.locks.request(`msdc-index-${name}`, () => host.#lead());
    host.channel.postMessage({ hello: true });
    await present;
    return host;
  }

  facts() {
    return { unavailable: this.unavailable };
  }

  #receive({ hello, leader, to, from, id, request, answer }) {
    if (hello && this.isLeading) this.channel.postMessage({ leader: this.#id });
    if (leader) {
      this.arrived();
      if (leader !== this.leader) this.#forget();
      this.leader = leader;
    }
    if (to !== this.#id) return;
    if (request) return this.channel.postMessage({ to: from, id, answer: this.#answer(request) });
    this.#pending.get(id)?.(answer);
    this.#pending.delete(id);
  }

  // Requests to a tab that was closed.
  #forget() {
    for (const resolve of this.#pending.values()) resolve({ isLost: true });
    this.#pending.clear();
  }

  async #lead() {
    if (this.isClosed) return;
    try {
      await this.#open();
    } catch (error) {
      this.failure = { status: error.status, line: lineOf(error) };
    }
    [this.isLeading, this.leader] = [true, this.#id];
    this.arrived();
    this.#forget();
    this.channel.postMessage({ leader: this.#id });
    await new Promise((resolve) => (this.end = resolve));
  }

  async #open() {
    const until = performance.now() + 1000 * RETRY_S;
    for (const file of fileNames(this.name)) {
      const entry = await this.folder.getFileHandle(file, { create: true });
      for (;;) {
        try {
          this.#handles.push(await entry.createSyncAccessHandle());
          break;
        } catch (error) {
          if (error.name !== "NoModificationAllowedError" || performance.now() > until) throw error;
          await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
        }
      }
    }
    // SQLite takes a file that is shorter than a page for a new one.
    if (this.#handles[0].getSize() % PAGE) throw Object.assign(new EncoderError(`${this.name}: damaged (cut)`), { status: DAMAGED });
    const core = await IndexCore.start(this.module, "index", filesOf(this.#handles));
    core.open({ path: `${this.name}.sqlite`, check: this.check });
    this.core = core;
  }

  // `epoch`: the tab in whose memory the request's batch is.
  #answer({ epoch, name, values, source }) {
    if (this.failure) return { error: this.failure };
    if (epoch && epoch !== this.#id) return { isLost: true };
    if (source && !this.core.has(source)) return { isUnread: true };
    const works = { load: (...files) => this.core.load(...files),
      release: (source) => this.core.release(source), end: (...values) => this.core.end(...values), content: () => this.#content() };
    try {
      if (works[name]) return { epoch: this.#id, value: works[name](...values) };
      return { epoch: this.#id, ...this.core.run(name, values, source) };
    } catch (error) {
      return { error: { status: error.status, name: error.name, line: lineOf(error) } };
    }
  }

  #content() {
    const bytes = new Uint8Array(this.#handles[0].getSize());
    this.#handles[0].read(bytes, { at: 0 });
    return bytes;
  }

  async request(request) {
    if (this.isLeading) return this.#answer(request);
    const id = ++this.#count, answer = new Promise((resolve) => this.#pending.set(id, resolve));
    this.channel.postMessage({ to: this.leader, from: this.#id, id, request });
    return answer;
  }

  close() {
    this.isClosed = true;
    if (this.core) this.core.end("msdc_index_close", this.core.index);
    for (const handle of this.#handles) handle.close();
    this.channel?.close();
    this.end?.();
  }
}

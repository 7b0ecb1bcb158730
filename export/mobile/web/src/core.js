// The native core as WebAssembly: its functions in a memory of their own, which goes with the object.

import { EncoderError, utf8 } from "./bytes.js";

const LINE = 1024, OUT = 64; // bytes of an error's line, and of numbers that the core writes
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

export class Core {
  #exports;
  #received = [];

  // `what` names it in messages; `files(memory)` gives the functions by which it reads and writes an index's file.
  static async start(module, what, files = () => ({ size: () => -1 })) {
    const core = new this(), system = new Proxy({}, { get: () => () => 8 }); // without other files
    const text = (_, at, size) => core.#received.push(core.#bytes().slice(at, at + size));
    const msdc = new Proxy({ text, ...files(() => core.#bytes()) }, { get: (given, name) => given[name] ?? (() => -1) });
    const { exports } = await WebAssembly.instantiate(module, { msdc, wasi_snapshot_preview1: system });
    core.#exports = exports;
    exports._initialize();
    return Object.assign(core, { what, receiver: exports.msdc_web_receiver(), out: core.put(new Uint8Array(OUT)) });
  }

  #bytes() {
    return new Uint8Array(this.#exports.memory.buffer);
  }

  // A copy in the core's memory, at an address or where there is room.
  put(array, at = this.#exports.malloc(array.byteLength || 1)) {
    if (!at) throw new EncoderError("out of memory");
    this.#bytes().set(new Uint8Array(array.buffer, array.byteOffset, array.byteLength), at);
    return at;
  }

  // A file that the core reads, for as long as it lasts; without bytes there is none of this path any more.
  file(path, bytes) {
    this.call("web_file", utf8(`${path}\0`), bytes.length, this.out);
    if (bytes.length) this.put(bytes, this.number());
  }

  // What the core wrote to `out`.
  read() {
    return this.#bytes().slice(this.out, this.out + OUT);
  }

  // A number of it.
  number() {
    return new DataView(this.#exports.memory.buffer).getUint32(this.out, true);
  }

  // Calls msdc_NAME: a string is passed as its address and size, an array as its address. Returns the bytes that it gave.
  call(name, ...values) {
    if (!this.#exports) throw new EncoderError(`the ${this.what} is closed`);
    const places = [], place = (array) => places[places.push(this.put(array)) - 1];
    this.#received = [];
    try {
      const parts = values.flatMap((value) => {
        if (typeof value !== "string") return [ArrayBuffer.isView(value) ? place(value) : Number(value)];
        const bytes = utf8(value);
        return [place(bytes), bytes.length];
      });
      const line = place(new Uint8Array(LINE)), status = this.#exports[`msdc_${name}`](...parts, line, LINE);
      const memory = this.#bytes();
      if (status) {
        const Kind = status === 1 ? RangeError : EncoderError, message = decoder.decode(memory.subarray(line, memory.indexOf(0, line)));
        throw Object.assign(new Kind(message), { status });
      }
      return this.#received;
    } catch (error) {
      if (!(error instanceof WebAssembly.RuntimeError)) throw error;
      this.close(); // its memory is of no use any more
      throw new EncoderError(`the ${this.what} failed and is closed (${error.message})`);
    } finally {
      places.forEach((at) => this.end("free", at));
    }
  }

  // Calls a function without a status, unless the memory is gone.
  end(name, at) {
    this.#exports?.[name](at);
  }

  close() {
    this.#exports = null;
  }
}

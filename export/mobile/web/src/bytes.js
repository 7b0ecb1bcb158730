// Bytes: hashes, growing buffers, UTF-8.

// A module of Node, undefined in pages: it is named nowhere that a page's bundler looks.
export function builtin(name) {
  return globalThis.process?.getBuiltinModule?.(name);
}

// Jest's imitation of a page has neither of them.
const { TextEncoder, TextDecoder } = globalThis.TextEncoder ? globalThis : builtin("node:util");
const encoder = new TextEncoder();

export const utf8 = (text) => encoder.encode(text);

// What an error of others says, in one line.
export const lineOf = (error) => String(error?.message ?? error).replace(/\s+/g, " ");

// The text of UTF-8, with U+FFFD where it is none.
export const textOf = (bytes) => new TextDecoder().decode(bytes);

export class EncoderError extends Error {
  name = "EncoderError";
}

export function damaged(what) {
  throw new EncoderError(`${what}: damaged; copy or export the bundle again`);
}

// What one text may cost. Every loop whose length a file decides spends from it, as in the native core: a hostile tokenizer
// costs a fixed number of steps per byte of text, and makes it at most a fixed number of times longer.
const MAX_TEXT_BYTES = 2 ** 26, STEPS = 16384, GROWTH = 64, FREE_BYTES = 64;
let steps = 0, room = 0;

export function allow({ length }) {
  if (length > MAX_TEXT_BYTES) throw new EncoderError("a text of more than 64 MiB");
  steps = (length + FREE_BYTES) * STEPS;
  room = (length + FREE_BYTES) * GROWTH;
}

export function spend(count) {
  if ((steps -= count) < 0) throw new EncoderError("the tokenizer takes too many steps on this text");
}

// Hex sha256. `crypto.subtle` exists in secure contexts only; a page on plain http from another machine is none.
export async function sha256(bytes) {
  const subtle = globalThis.crypto?.subtle;
  const digest = subtle ? new Uint8Array(await subtle.digest("SHA-256", bytes)) : sha256InScript(bytes);
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// FIPS 180-4. Constants are the first 32 bits of the fractions of roots of the first primes.
export function sha256InScript(bytes) {
  const fraction = (root) => Math.floor((root % 1) * 2 ** 32) | 0;
  const primes = [];
  for (let n = 2; primes.length < 64; ++n) if (primes.every((prime) => n % prime)) primes.push(n);
  const k = Int32Array.from(primes, (prime) => fraction(Math.cbrt(prime)));
  const state = Int32Array.from(primes.slice(0, 8), (prime) => fraction(Math.sqrt(prime)));
  const w = new Int32Array(64);
  const turn = (x, n) => (x >>> n) | (x << (32 - n));
  const block = (view, at) => {
    for (let i = 0; i < 16; ++i) w[i] = view.getInt32(at + 4 * i);
    for (let i = 16; i < 64; ++i) {
      const a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (turn(a, 7) ^ turn(a, 18) ^ (a >>> 3)) + (turn(b, 17) ^ turn(b, 19) ^ (b >>> 10));
    }
    let [a, b, c, d, e, f, g, h] = state;
    for (let i = 0; i < 64; ++i) {
      const one = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & f) ^ (~e & g)) + k[i] + w[i]) | 0;
      const two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
      h = g;
      g = f;
      f = e;
      e = (d + one) | 0;
      d = c;
      c = b;
      b = a;
      a = (one + two) | 0;
    }
    [a, b, c, d, e, f, g, h].forEach((value, i) => (state[i] += value));
  };
  const whole = bytes.length & ~63;
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at < whole; at += 64) block(view, at);
  const last = new Uint8Array(bytes.length - whole < 56 ? 64 : 128);
  last.set(bytes.subarray(whole));
  last[bytes.length - whole] = 0x80;
  const end = new DataView(last.buffer);
  end.setUint32(last.length - 8, Math.floor(bytes.length / 2 ** 29));
  end.setUint32(last.length - 4, (bytes.length * 8) >>> 0);
  for (let at = 0; at < last.length; at += 64) block(end, at);
  const out = new DataView(new ArrayBuffer(32));
  state.forEach((value, i) => out.setInt32(4 * i, value));
  return new Uint8Array(out.buffer);
}

// A form of the text: a byte string that grows at its end.
export class Bytes {
  constructor(size = 64) {
    this.data = new Uint8Array(Math.min(size, room));
    this.length = 0;
  }

  widen(size) {
    if (size > room) throw new EncoderError("the tokenizer makes this text too long");
    const wider = new Uint8Array(Math.min(2 * size, room));
    wider.set(this.data.subarray(0, this.length));
    this.data = wider;
  }

  append(from, start = 0, end = from.length) {
    const size = this.length + end - start;
    if (size > this.data.length) this.widen(size);
    // Short pieces are the rule, and `set` on a subarray costs more than a loop for them.
    if (end - start < 32) for (let i = start, at = this.length; i < end; ++i) this.data[at++] = from[i];
    else this.data.set(from.subarray(start, end), this.length);
    this.length = size;
  }

  push(byte) {
    if (this.length === this.data.length) this.widen(this.length + 1);
    this.data[this.length++] = byte;
  }

  value() {
    return this.data.subarray(0, this.length);
  }
}

const ANNOUNCED = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4];

// End of the character that begins at `at`, as its first byte announces it, not past `size`.
export function nextCharacter(text, at, size = text.length) {
  const end = at + ANNOUNCED[text[at] >> 4];
  return end < size ? end : size;
}

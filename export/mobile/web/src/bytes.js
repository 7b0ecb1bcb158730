// Bytes: hashes and UTF-8.

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

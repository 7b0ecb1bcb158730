// How a file of the bundle is asked for, and what a server may have sent in its place.

import { builtin, damaged, EncoderError, lineOf, textOf } from "./bytes.js";

// Errors name an address without its query: that may be a signature.
const shown = (url) => url.split("?")[0];

// Node's fetch reads no files.
async function fileAnswer(url, { signal }) {
  const bytes = await builtin("node:fs").promises.readFile(builtin("node:url").fileURLToPath(url), { signal });
  return { ok: true, status: 200, arrayBuffer: async () => bytes };
}

const usualFetch = (url, init) => (url.startsWith("file:") && builtin("node:fs") ? fileAnswer : fetch)(url, init);

// Some answers have no stream.
function wholeReader(answer) {
  let bytes;
  return {
    async read() {
      if (bytes) return { done: true };
      bytes = new Uint8Array(await answer.arrayBuffer());
      return { done: false, value: bytes };
    },
    cancel: async () => {},
  };
}

// Ask for `url` with an app's fetch, or the usual one: the answer's status, and its bytes part by part.
export async function download(url, init, ask = usualFetch) {
  const answer = await ask(url, init);
  if (typeof answer?.status !== "number") throw new TypeError("fetch gave no Response");
  const reader = answer.body?.getReader?.() ?? wholeReader(answer);
  return { ok: answer.ok, status: answer.status, read: () => reader.read(), cancel: () => reader.cancel() };
}

// The work's answer, or the signal's reason as soon as it is aborted: an app's fetch need not listen to signals.
export function untilAborted(work, signal) {
  if (!signal) return work;
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason);
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop);
    work.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
  });
}

function adviceOn(url) {
  const onDisk = url.startsWith("file:"), isNode = builtin("node:fs");
  if (onDisk) return isNode ? "" : "; a page reads no files: serve the folder over http";
  return isNode && globalThis.document ? "; a folder of this disk is named by its file: address" : "";
}

// The answer to a request for a file; every other status than success is refused.
export async function request(ask, url, init) {
  let answer;
  try {
    answer = await untilAborted(ask(url, init), init.signal);
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new EncoderError(`${shown(url)}: no answer (${lineOf(error)})${adviceOn(url)}`);
  }
  if (answer.ok) return answer;
  answer.cancel().catch(() => {});
  const refused = [401, 403].includes(answer.status) ? "; pass {headers} or {fetch}, or sign the bundle's address again" : "";
  throw new EncoderError(`${shown(url)}: status ${answer.status}${refused}`);
}

// Servers answer with a page where a file is missing, and repositories hold pointers in place of large files.
export function refuseContent(url, bytes, what) {
  const start = textOf(bytes.subarray(0, 100)).trimStart();
  if (/^<(!doctype|!--|html|head|body)/i.test(start)) {
    throw new EncoderError(`${shown(url)}: an HTML page instead of the file; check the address, and that the file is there`);
  }
  if (/^version \S*git-lfs/.test(start)) {
    throw new EncoderError(`${shown(url)}: a Git LFS pointer instead of the file; run git lfs pull, and copy the file again`);
  }
  damaged(`${shown(url)}: ${what}`);
}

// Exactly `size` bytes of an answer, or at most `size` where `atMost` is set; never more in memory than that.
export async function body(answer, url, size, { onBytes = () => {}, atMost = false, signal } = {}) {
  const bytes = new Uint8Array(size), left = () => answer.cancel().catch(() => {});
  let length = 0;
  for (;;) {
    let part;
    try {
      part = await untilAborted(answer.read(), signal);
    } catch (error) {
      left();
      if (signal?.aborted) throw error;
      if (length === size) break; // another length was announced; the hash decides
      const reached = `the download ended at ${length}${atMost ? "" : ` of ${size}`} bytes`;
      throw new EncoderError(`${shown(url)}: ${reached}, or its Content-Length is wrong (${lineOf(error)})`);
    }
    if (part.done) break;
    const { value } = part;
    if (length + value.length > size) {
      left();
      refuseContent(url, length ? bytes : value, `more than ${size} bytes`);
    }
    bytes.set(value, length);
    length += value.length;
    onBytes(value.length);
  }
  if (length < size && !atMost) {
    const partial = answer.status === 206 ? "; the server sends a part of it (status 206)" : "";
    refuseContent(url, bytes.subarray(0, length), `${length} of ${size} bytes${partial}`);
  }
  return bytes.subarray(0, length);
}

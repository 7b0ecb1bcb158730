// Downloads by an app's own means, and from servers of many kinds.
import { Encoder, EncoderError } from "/bundle/web/msdc.js";

/** What loading a bundle comes to: "passed" its self-test, or the error as one line. */
export async function load(url, options = {}) {
  try {
    const encoder = await Encoder.load(url, { cache: false, ...options });
    const { passed } = await encoder.selfTest();
    encoder.close();
    return passed ? "passed" : "failed";
  } catch (error) {
    return `${error instanceof EncoderError ? "EncoderError" : `!${error.name}`}: ${error.message}`;
  }
}

/** Ways to fetch, by name; `calls` are the addresses and options that an app's fetch gets. */
export const calls = [];
const noted = (answer) => async (url, init) => {
  calls.push({ url, cache: init.cache, headers: init.headers });
  return answer(url, init);
};
export const ways = {
  signed: noted((url, init) => fetch(`${url}?sig=abc`, { ...init, headers: { authorization: "Bearer x" } })),
  plain: noted((url, init) => fetch(url, init)),
  unstreamed: noted(async (url, init) => {
    const { ok, status, arrayBuffer } = await fetch(url, init).then(async (answer) => ({ ok: answer.ok, status: answer.status, arrayBuffer: await answer.arrayBuffer() }));
    return { ok, status, arrayBuffer: async () => arrayBuffer };
  }),
  // Parts of one large buffer, which must not be taken from the app.
  views: noted(async (url, init) => {
    const bytes = new Uint8Array(await (await fetch(url, init)).arrayBuffer());
    const parts = Array.from({ length: Math.ceil(bytes.length / 65536) }, (_, i) => bytes.subarray(65536 * i, 65536 * (i + 1)));
    return new Response(new ReadableStream({ pull: (control) => (parts.length ? control.enqueue(parts.shift()) : control.close()) }));
  }),
  deaf: noted((url) => (url.includes("model.onnx") ? new Promise(() => {}) : fetch(url))),
  broken: noted(async () => Promise.reject(new TypeError("the gateway\nis closed"))),
  none: noted(async () => undefined),
  text: noted(async () => "a text"),
};

export const loadBy = async (way, options = {}, url = "/bundle") => {
  calls.length = 0;
  return { answer: await load(url, { fetch: ways[way], ...options }), calls: [...calls] };
};

/** Progress of a load by an app's fetch, and one that is cancelled at its first progress. */
export async function progressBy(way, options) {
  const steps = [], control = new AbortController();
  const answer = await load("/bundle", { fetch: ways[way], onProgress: (step) => steps.push(step), ...options });
  const cancelled = load("/bundle", { fetch: ways[way], signal: control.signal, onProgress: () => control.abort(new Error("enough")), ...options });
  const { loaded, total } = steps.at(-1);
  return { answer, loaded, total, rising: steps.every((step, i) => !i || step.loaded >= steps[i - 1].loaded), cancelled: await cancelled };
}

/** A load that is cancelled while the app's fetch does not answer. */
export async function cancelDeaf(options) {
  const control = new AbortController();
  setTimeout(() => control.abort(new Error("enough")), 300);
  return load("/bundle", { fetch: ways.deaf, signal: control.signal, ...options });
}

/** Addresses of what a load leaves in the cache. */
export async function cached(url, options = {}) {
  const answer = await load(url, { cache: true, ...options });
  const keys = await (await caches.open("msdc")).keys();
  return { answer, keys: keys.map((key) => key.url) };
}

/** Loads with a cache that fails in one of several ways; two each, as the second finds what the first left. */
export async function withCache(kind) {
  const failing = (name) => () => Promise.reject(new DOMException("no room", name));
  const store = await caches.open("msdc"), { put, match, keys } = Cache.prototype;
  if (kind === "full") Cache.prototype.put = failing("QuotaExceededError");
  if (kind === "unreadable") Object.assign(Cache.prototype, { match: failing("UnknownError"), keys: failing("UnknownError") });
  if (kind === "forbidden") caches.open = failing("SecurityError");
  if (kind === "spoiled") {
    await load("/bundle", { cache: true });
    for (const key of await store.keys()) await store.put(key, new Response(new Uint8Array(7)));
  }
  const answers = [];
  for (let i = 0; i < 2; ++i) answers.push(await load("/bundle", { cache: true, worker: false }));
  Object.assign(Cache.prototype, { put, match, keys });
  await caches.delete("msdc");
  return answers;
}

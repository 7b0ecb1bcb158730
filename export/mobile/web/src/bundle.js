// A bundle behind a web address: its sealed manifest, and its files, checked and cached by their sha256.

import { damaged, EncoderError, sha256, utf8 } from "./bytes.js";

const MANIFEST = "bundle.json", MAX_MANIFEST_BYTES = 2 ** 20;
const CACHE = "msdc";

/** A module of Node, undefined in pages: it is named nowhere that a page's bundler looks. */
export function builtin(name) {
  return globalThis.process?.getBuiltinModule?.(name);
}

// Node's fetch reads no files.
async function readFile(url, signal) {
  const bytes = await builtin("node:fs").promises.readFile(new URL(url), { signal });
  return Object.defineProperty(new Response(bytes), "url", { value: url });
}

async function request(url, options) {
  const onDisk = url.startsWith("file:") && builtin("node:fs");
  let answer;
  try {
    answer = await (onDisk ? readFile(url, options.signal) : fetch(url, options));
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new EncoderError(`${url}: no answer (${error.message})`);
  }
  if (!answer.ok) throw new EncoderError(`${url}: status ${answer.status}`);
  return answer;
}

// Exactly `size` bytes of an answer, or at most `size` where `atMost` is set; never more in memory than that.
async function body(answer, size, { onBytes = () => {}, atMost = false } = {}) {
  const bytes = new Uint8Array(size), reader = answer.body.getReader();
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    if (length + value.length > size) {
      await reader.cancel();
      damaged(`${answer.url}: more than ${size} bytes`);
    }
    bytes.set(value, length);
    length += value.length;
    onBytes(value.length);
  }
  if (length < size && !atMost) damaged(`${answer.url}: ${length} of ${size} bytes`);
  return bytes.subarray(0, length);
}

// Names are relative and stay inside the folder, as the manifest's schema demands.
function inside(base, name) {
  const url = new URL(name.split("/").map(encodeURIComponent).join("/"), base);
  const escapes = name.startsWith("/") || name.split("/").some((part) => ["", ".", ".."].includes(part));
  if (escapes || !url.href.startsWith(base)) damaged(`${MANIFEST}: the path ${name}`);
  return url.href;
}

async function sealed(text) {
  const seal = /"seal": "([0-9a-f]{64})"/.exec(text);
  const open = text.replace(/"seal": "[0-9a-f]{64}"/, `"seal": "${"0".repeat(64)}"`);
  return seal !== null && seal[1] === (await sha256(utf8(open)));
}

// The origin's cache; null where there is none (plain http) or none is wanted.
const storage = async (wanted) => (wanted && typeof caches === "object" ? caches.open(CACHE).catch(() => null) : null);

async function keptManifest(store, pinned) {
  const key = ((await store?.keys()) ?? []).find(({ url }) => url.endsWith(`/${pinned}`));
  const kept = key && (await store.match(key));
  const bytes = kept && new Uint8Array(await kept.arrayBuffer());
  return bytes && (await sha256(bytes)) === pinned ? bytes : null;
}

export class BundleFiles {
  // `pinned` is the sha256 that bundle.json must have, null for any.
  static async open(base, { pinned = null, cache = true, signal } = {}) {
    const url = inside(base, MANIFEST), store = await storage(cache);
    const fetched = async () => body(await request(url, { signal, cache: "no-cache" }), MAX_MANIFEST_BYTES, { atMost: true });
    // A pinned manifest cannot change: the kept one is as good as the server's, and there without a network.
    const kept = pinned === null ? null : await keptManifest(store, pinned);
    const bytes = kept ?? (await fetched());
    if (pinned !== null && !kept && (await sha256(bytes)) !== pinned) damaged(`${MANIFEST}: another sha256 than the app's`);
    const text = new TextDecoder().decode(bytes);
    let manifest;
    try {
      manifest = JSON.parse(text);
    } catch {
      throw new EncoderError(`${url}: not a bundle`);
    }
    if (!(await sealed(text))) damaged(`${MANIFEST} (its seal does not match)`);
    if (manifest.format !== 1) throw new EncoderError(`${url}: format ${manifest.format}, not 1`);
    const files = new BundleFiles(base, manifest, store, signal, pinned);
    if (pinned !== null && !kept) await store?.put(files.key({ sha256: pinned }), new Response(bytes)).catch(() => {});
    return files;
  }

  constructor(base, manifest, store, signal, pinned) {
    Object.assign(this, { base, manifest, store, signal, pinned });
  }

  has(name) {
    return Object.hasOwn(this.manifest.files, name);
  }

  url(name) {
    return inside(this.base, name);
  }

  bytes(name) {
    return this.record(name).bytes;
  }

  record(name) {
    if (!this.has(name)) damaged(`${MANIFEST}: it does not list ${name}, which`);
    return this.manifest.files[name];
  }

  // A cached file is found by bundle and hash, so a new version is fetched and an unchanged file is not.
  key(record) {
    return new URL(`/.msdc/${encodeURIComponent(this.manifest.name)}/${record.sha256}`, this.base).href;
  }

  // The checked bytes of a file, from the browser's cache or from the network.
  async read(name, onBytes = () => {}) {
    const record = this.record(name), url = this.url(name);
    const kept = await this.store?.match(this.key(record));
    if (kept) {
      const bytes = new Uint8Array(await kept.arrayBuffer());
      if (bytes.length === record.bytes && (await sha256(bytes)) === record.sha256) {
        onBytes(bytes.length);
        return bytes;
      }
    }
    // The browser's own HTTP cache may hold the file of an older version: ask the server before giving up.
    for (const mode of ["default", "reload"]) {
      let counted = 0;
      const count = (size) => {
        counted += size;
        onBytes(size);
      };
      try {
        const answer = await request(url, { signal: this.signal, cache: mode });
        const bytes = await body(answer, record.bytes, { onBytes: count });
        if ((await sha256(bytes)) !== record.sha256) damaged(`${url}: its sha256 is not the manifest's; it`);
        // A full disk, or a private window: the encoder works without a cache.
        await this.store?.put(this.key(record), new Response(bytes)).catch(() => {});
        return bytes;
      } catch (error) {
        if (mode === "reload" || this.signal?.aborted || !(error instanceof EncoderError)) throw error;
        onBytes(-counted);
      }
    }
  }

  // Drop what earlier versions of this bundle left in the cache.
  async dropOldFiles() {
    const current = new Set([...Object.values(this.manifest.files), { sha256: this.pinned }].map((record) => this.key(record)));
    const own = new URL(`/.msdc/${encodeURIComponent(this.manifest.name)}/`, this.base).href;
    for (const { url } of (await this.store?.keys()) ?? []) if (url.startsWith(own) && !current.has(url)) await this.store.delete(url);
  }
}

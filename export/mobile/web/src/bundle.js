// A bundle behind a web address: its sealed manifest, and its files, checked and cached by their sha256.

import { damaged, EncoderError, sha256, textOf, utf8 } from "./bytes.js";
import { body, refuseContent, request } from "./download.js";

const MANIFEST = "bundle.json", MAX_MANIFEST_BYTES = 2 ** 20;
const CACHE = "msdc";

// Names are relative and stay inside the folder, as the manifest's schema demands.
function inside(folder, name) {
  const url = new URL(name.split("/").map(encodeURIComponent).join("/"), folder);
  const escapes = name.startsWith("/") || name.split("/").some((part) => ["", ".", ".."].includes(part));
  if (escapes || !url.href.startsWith(folder)) damaged(`${MANIFEST}: the path ${name}`);
  return url.href;
}

async function sealed(text) {
  const seal = /"seal": "([0-9a-f]{64})"/.exec(text);
  const open = text.replace(/"seal": "[0-9a-f]{64}"/, `"seal": "${"0".repeat(64)}"`);
  return seal !== null && seal[1] === (await sha256(utf8(open)));
}

// A cache that fails (a full disk, a private window, a damaged profile) is none: the encoder works without one.
async function orNone(work) {
  try {
    return await work();
  } catch {
    return undefined;
  }
}

// The origin's cache, where there is one: not on plain http, nor in a frame whose sandbox gives it no origin.
const storage = (wanted) => orNone(() => (wanted && typeof caches === "object" ? caches.open(CACHE) : undefined));

async function keptBytes(store, key) {
  return orNone(async () => {
    const kept = await store?.match(key);
    return kept && new Uint8Array(await kept.arrayBuffer());
  });
}

async function keptManifest(store, pinned) {
  const keys = (await orNone(() => store?.keys())) ?? [];
  const key = keys.find(({ url }) => url.endsWith(`/${pinned}`)), bytes = key && (await keptBytes(store, key));
  return bytes && (await sha256(bytes)) === pinned ? bytes : null;
}

export class BundleFiles {
  // `source`: the folder's address, the query of all files, headers, and `ask`, which starts a download. `pinned` is the
  // sha256 that bundle.json must have, null for any.
  static async open(source, { pinned = null, cache = true, signal } = {}) {
    const files = new BundleFiles(source, await storage(cache), pinned), url = files.url(MANIFEST);
    const fetched = async () => body(await files.ask(url, "no-cache", signal), url, MAX_MANIFEST_BYTES, { atMost: true, signal });
    // A pinned manifest cannot change: the kept one is as good as the server's, and there without a network.
    const kept = pinned === null ? null : await keptManifest(files.store, pinned);
    const bytes = kept ?? (await fetched());
    const text = textOf(bytes);
    let manifest;
    try {
      manifest = JSON.parse(text);
    } catch {
      refuseContent(url, bytes, "not the manifest of a bundle");
    }
    if (pinned !== null && !kept && (await sha256(bytes)) !== pinned) damaged(`${MANIFEST}: another sha256 than the app's`);
    if (!(await sealed(text))) damaged(`${MANIFEST} (its seal does not match)`);
    if (manifest.format !== 1) throw new EncoderError(`${files.folder}${MANIFEST}: format ${manifest.format}, not 1`);
    Object.assign(files, { manifest, manifestBytes: bytes });
    if (pinned !== null && !kept) await files.keep({ sha256: pinned }, bytes);
    return files;
  }

  constructor({ folder, query = "", headers, ask }, store, pinned) {
    Object.assign(this, { folder, query, headers, download: ask, store, pinned });
  }

  // `mode` is how the browser's own HTTP cache is used.
  ask(url, mode, signal) {
    return request(this.download, url, { signal, cache: mode, ...(this.headers && { headers: this.headers }) });
  }

  has(name) {
    return Object.hasOwn(this.manifest.files, name);
  }

  url(name) {
    return inside(this.folder, name) + this.query;
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
    return new URL(`/.msdc/${encodeURIComponent(this.manifest.name)}/${record.sha256}`, this.folder).href;
  }

  // An entry is whole or absent, also where the page is closed or the disk is full meanwhile.
  keep(record, bytes) {
    return orNone(() => this.store?.put(this.key(record), new Response(bytes)));
  }

  // The checked bytes of a file, from the browser's cache or from the network.
  async read(name, { signal, onBytes = () => {} } = {}) {
    const record = this.record(name), url = this.url(name);
    const kept = await keptBytes(this.store, this.key(record));
    if (kept?.length === record.bytes && (await sha256(kept)) === record.sha256) {
      onBytes(kept.length);
      return kept;
    }
    // The browser's own HTTP cache may hold the file of an older version: ask the server before giving up.
    for (const mode of ["default", "reload"]) {
      let counted = 0;
      const count = (size) => {
        counted += size;
        onBytes(size);
      };
      try {
        const bytes = await body(await this.ask(url, mode, signal), url, record.bytes, { onBytes: count, signal });
        if ((await sha256(bytes)) !== record.sha256) refuseContent(url, bytes, "its sha256 is not the manifest's");
        await this.keep(record, bytes);
        return bytes;
      } catch (error) {
        if (mode === "reload" || signal?.aborted || !(error instanceof EncoderError)) throw error;
        onBytes(-counted);
      }
    }
  }

  // Drop what earlier versions of this bundle left in the cache.
  async dropOldFiles() {
    const current = new Set([...Object.values(this.manifest.files), { sha256: this.pinned }].map((record) => this.key(record)));
    const prefix = new URL(`/.msdc/${encodeURIComponent(this.manifest.name)}/`, this.folder).href;
    await orNone(async () => {
      const urls = ((await this.store?.keys()) ?? []).map(({ url }) => url);
      for (const url of urls) if (url.startsWith(prefix) && !current.has(url)) await this.store.delete(url);
    });
  }
}

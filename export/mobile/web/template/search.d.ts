import type { Encoder } from "./msdc.js";

/** A document: its text with an id, a title, and values to filter by. */
export interface Document {
  text: string;
  id?: string | number;
  title?: string;
  [value: string]: unknown;
}

/** `score` ranks: bm25 of the words + 20 x cosine of the best passage, which is `text.slice(start, end)`. */
export interface Hit {
  id: string;
  score: number;
  /** null where it is not part of the score. */
  cosine: number | null;
  words: number | null;
  text: string;
  start: number;
  end: number;
  passage: string;
  title: string;
  metadata: Record<string, unknown>;
}

type Value = string | number | boolean;

export interface SearchOptions {
  /** At most so many hits. Default: 5. */
  top?: number;
  /** Rank by the words (BM25), by the vectors (cosine of the best passage), or by both, the default. */
  mode?: "words" | "vectors" | "both";
  /** Hits have at least this cosine. */
  threshold?: number;
  /** Values that the metadata must have by name: one, a list of them, or bounds. Texts compare as text: dates sort. */
  where?: Record<string, Value | readonly Value[] | { least?: Value; most?: Value }>;
}

/** Documents that are found by words and by meaning: the SQLite file of `msdc search`, with its answers. */
export class SearchIndex {
  private constructor();
  /** Number of documents. */
  readonly length: number;
  /** Add documents; an id that is there already is an error. Returns their number. */
  add(documents: Iterable<string | Document>): Promise<number>;
  /** `add` that replaces documents of the same id. */
  update(documents: Iterable<string | Document>): Promise<number>;
  /** Remove documents by id; returns how many were there. */
  remove(ids: readonly (string | number)[]): number;
  /** @throws RangeError an empty query, an unknown mode, a name in `where` that no document has. */
  search(query: string, options?: SearchOptions): Promise<Hit[]>;
  /** The SQLite file, to be kept (in IndexedDB, say) or opened elsewhere. */
  bytes(): Uint8Array;
  close(): void;
}

/**
 * Open the index in `source`: a URL, the file's bytes, or null for a new one. It is held in memory.
 * `sqlite`: the default export of @sqlite.org/sqlite-wasm, or the address of its dist/index.mjs. Default: the bundle's copy.
 * @throws EncoderError damaged, of another model, or no SQLite.
 */
export function openIndex(
  source: string | URL | Uint8Array | null,
  encoder: Encoder,
  options?: { sqlite?: string | URL | (() => Promise<unknown>) },
): Promise<SearchIndex>;

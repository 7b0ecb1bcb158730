import { type Address, type Encoder, EncoderError, type Global, type Signal } from "./msdc.js";

type Module = typeof globalThis extends { WebAssembly: { Module: { prototype: infer Type } } } ? Type : object;

/** A document: its text with an id, a title, and values to filter by. */
export interface Document {
  text: string;
  id?: string | number;
  title?: string;
  [value: string]: unknown;
}

/**
 * `score` ranks: `words` + 4 x the matched share, `cosine` of the best passage, or the sum, with the cosine scaled by
 * the model's own. The passage to show is `text.slice(start, end)`. Offsets are in units of JavaScript's strings.
 */
export interface Hit {
  id: string;
  score: number;
  /** Of the best passage; null where it is not part of the score. */
  cosine: number | null;
  /** BM25 x coverage of the query's words; null where it is not part of the score. */
  words: number | null;
  text: string;
  start: number;
  end: number;
  passage: string;
  title: string;
  metadata: Record<string, unknown>;
  /** [start, end] of the query's words in `text`, in order: to highlight. */
  matches: [number, number][];
  /** Number of documents with the same words, of which this is the best. */
  count: number;
}

/** A Date compares as its ISO text (`toISOString`), as which metadata has it too; null is no value: missing, null or empty. */
type Value = string | number | boolean | Date;
type Alternative = Value | null | { least?: Value | null; most?: Value | null };
type Alternatives = Alternative | readonly Alternative[];

export interface Filter {
  [name: string]: Alternatives | { not: Alternatives } | Filter | Filter[];
}

export interface SearchOptions {
  /** At most so many hits. Default: 5. */
  top?: number;
  /**
   * Rank by the words (BM25), by the vectors (cosine of the best passage), or by both, the default. Without an encoder "both"
   * is by words.
   */
  mode?: "words" | "vectors" | "both";
  /** Hits have at least this cosine; documents in which every word of the query matches are hits all the same. */
  threshold?: number | null;
  /**
   * Required metadata by name: a value, a list of alternatives, bounds, null for no value, or `not`: none of these. `and` and `or`
   * have a list of filters, `not` has one.
   */
  where?: Filter;
  /** The number of hits to skip, for pages. Default: 0. */
  offset?: number;
  /** Documents with the same words (whatever their case, blanks and punctuation) are one hit, the best. Default: true. */
  distinct?: boolean;
  /**
   * With "operators", the default, documents with "words in quotes" come first, and those with -excluded words or
   * -"phrases" are no hits; "plain" takes quotes and minus as text.
   */
  syntax?: "operators" | "plain";
  /**
   * Up to three columns that sort the hits which match: "day" has the least value first, "-day" the greatest; documents without
   * a value are last. A hit matches if it has every word of the query, or a cosine three deviations above unrelated
   * sentences. The others follow by score.
   */
  order?: string | readonly string[];
  /** Pairs of a filter as in `where` and a number that its documents get on their score. */
  boost?: readonly (readonly [Filter, number])[];
  /** A column of which each value has at most `groupSize` hits; `top` and `offset` count groups. */
  group?: string | null;
  /** Default: 1. */
  groupSize?: number;
}

/** Of blocks of 256 documents, each of which is written completely or not at all; an abort ends before the next one. */
export interface WriteOptions {
  onProgress?: (progress: { done: number; total: number }) => void;
  signal?: Signal;
}

/** An intact index of another model: opened without an encoder, `SearchIndex.rebuild` encodes its documents again. */
export class OtherModel extends EncoderError {}
/** The index's file is damaged. */
export class Damaged extends EncoderError {}
/** The browser's storage is full; what was written before is intact. */
export class Full extends EncoderError {}
/** The index can only be read here. */
export class ReadOnly extends EncoderError {}

/** Documents that are found by words and by meaning: the SQLite file of `msdc search`, with its answers. */
export class SearchIndex {
  private constructor();
  /**
   * "file": in the browser's storage, for all tabs. "memory": of this page alone. "copy": of a service worker, which reads what
   * was there when it was opened.
   */
  readonly storage: "file" | "memory" | "copy";
  /** Why an index with a name is in memory alone; null where it is not. */
  readonly storageError: string | null;
  /** Number of documents. */
  count(): Promise<number>;
  /** The least cosine of a relevant entry by this model, a threshold for `search`; null in an empty index. */
  relevantCosine(): Promise<number | null>;
  /** Add documents; an id that is there already is an error. Returns their number. */
  add(documents: string | Document | Iterable<string | Document>, options?: WriteOptions): Promise<number>;
  /** `add` that replaces documents of the same id; an unchanged text is not encoded again. */
  update(documents: string | Document | Iterable<string | Document>, options?: WriteOptions): Promise<number>;
  /** Remove documents by id; returns how many were there. */
  remove(ids: string | number | Iterable<string | number>): Promise<number>;
  /** The ids of all documents, in the order in which they were added. */
  ids(): Promise<string[]>;
  /** The document of an id, with the values to filter by; null without one. */
  get(id: string | number): Promise<Document | null>;
  /**
   * Encode all documents again with `encoder`, for an index of another model; it is one of this model then, and has this
   * encoder. Until the end it is searched by words as before. What was interrupted continues with the next call, also of
   * stored `bytes()`. An index of this model already is left as it is. Returns the number of documents that were encoded.
   */
  rebuild(encoder: Encoder, options?: WriteOptions): Promise<number>;
  /**
   * The documents nearest to a query, best first. Its last word without a blank behind it also matches words that begin with
   * it. If no document has a word of the query, the most similar words of the index are looked for.
   * @throws RangeError an empty query, an option out of range, a column that no document has.
   */
  search(query: string, options?: SearchOptions): Promise<Hit[]>;
  /**
   * The documents nearest to the one of an id, by the stored vectors: the mean of its passages against the best passage of each.
   * Nothing is encoded. The document itself is no hit, nor, with `distinct`, are those with the same words.
   * @throws RangeError an unknown id, a document that the model could not read.
   */
  similar(id: string | number, options?: Omit<SearchOptions, "mode" | "syntax">): Promise<Hit[]>;
  /** Gives the space of removed documents back: `bytes()` is smaller then. */
  compact(): Promise<void>;
  /** Compare the whole file with its checksums, as `openIndex` does. @throws Damaged */
  check(): Promise<void>;
  /** The SQLite file in its present state, a complete backup: to be stored or opened elsewhere. */
  bytes(): Promise<Uint8Array>;
  close(): Promise<void>;
}

/**
 * Open the index in `source`: a URL, the file's bytes, or null for a new one, held in memory; or {name}: the index of this name in
 * the browser's storage, created where it is missing. All tabs of the origin have it open at once, and each is told the same: one
 * of them writes the file, and another goes on where that one is closed. Without such storage it is in memory: `storage` says so.
 * `fetch`: asks for a URL in place of the global one, with a header or a signature.
 * `wasm`: the address of search.wasm, its bytes, or its compiled module. Default: the file next to this module.
 * `encoder`: null for an index of any model, to search by words and for `rebuild`.
 * `check`: compare the whole file with its checksums, which takes the longer the more it has. Without, what a search reads
 * is compared then: for a file that was opened before. Default: true.
 * @throws OtherModel an intact index of another model than that of `encoder`.
 * @throws Damaged
 * @throws EncoderError no search.wasm.
 */
export function openIndex(
  source: Address | Uint8Array | { name: string } | null,
  encoder: Encoder | null,
  options?: {
    wasm?: Address | ArrayBuffer | ArrayBufferView | Module; fetch?: (url: Address) => Promise<Global<"Response">>;
    check?: boolean;
  },
): Promise<SearchIndex>;

/** Delete the index of a name in the browser's storage, which no tab has open. */
export function deleteIndex(name: string): Promise<void>;

/** Why a bundle or a text was refused: one line. */
export class EncoderError extends Error {}

/**
 * The class `Name` of a browser where the project has its types ("lib": "dom" or "webworker", @types/node), else `Absent`: these
 * types compile in every project.
 */
export type Global<Name extends string, Absent = object> = typeof globalThis extends {
  [name in Name]: { prototype: infer Type };
} ? Type : Absent;
export type Signal = Global<"AbortSignal", { readonly aborted: boolean }>;
type Worker = Global<"Worker">;
export type Address = string | Global<"URL", { readonly href: string }>;
type Init = typeof globalThis extends { fetch: (address: never, init?: infer Type) => unknown } ? NonNullable<Type> : object;

export interface LoadOptions {
  /** Cancels the download and the start. */
  signal?: Signal;
  /** Bytes so far, of all files together; files in the browser's cache count at once. */
  onProgress?: (progress: { file: string; loaded: number; total: number }) => void;
  /**
   * Where the encoder runs: true for a worker of the module's own, false for this thread, or a worker that the app
   * makes, whose script imports msdc.js: `new Worker(new URL("./encoder.js", import.meta.url), { type: "module" })`.
   * Such a worker may have other messages and several encoders; `close` ends one that a function made, and leaves one
   * that was passed. Default: true in a page with workers, false elsewhere (a worker, a service worker, Node, jsdom) and
   * with a module as `runtime`.
   */
  worker?: boolean | Worker | (() => Worker | Promise<Worker>);
  /** sha256 of bundle.json that the app expects; other bundles are refused, and a cached one starts without a network. */
  sha256?: string;
  /** Keep the files in the browser's cache, by hash. Default: true; needs https or localhost. */
  cache?: boolean;
  /** Sent with the request for every file. */
  headers?: Global<"Headers", never> | Record<string, string> | [string, string][];
  /**
   * Asks for every file in place of the global `fetch`, in the page also where the encoder runs in a worker. `init` has
   * `signal`, `cache` and `headers`. What is imported from an address (`runtime`) is not asked for.
   */
  fetch?: (url: string, init: Init) => Promise<Global<"Response">>;
  /**
   * The runtime: the address of onnxruntime-web's ort.wasm.bundle.min.mjs, or that module, imported, which runs in this
   * thread. A service worker needs the module: `import * as runtime from "./web/runtime/ort.wasm.bundle.min.mjs"`.
   * Default: the bundle's copy, else the peer dependency.
   */
  runtime?: Address | object;
  /** Threads of the runtime; more than one needs a cross-origin isolated page and `worker-src blob:`. Default: 1. */
  threads?: number;
}

export interface EncodeOptions {
  /** Text before every text; "" switches the model's default prompt off. */
  prompt?: string;
  /** Name of one of the model's prompts. */
  promptName?: string;
}

export interface TokenizeOptions extends EncodeOptions {
  /** Ids that a text may have. Default: `maxLength` of the model. */
  maxLength?: number;
}

export interface VectorOptions extends EncodeOptions {
  /** Keep the first numbers of every vector only. */
  truncateDim?: number;
  signal?: Signal;
  onProgress?: (progress: { done: number; total: number }) => void;
}

export interface SelfTest {
  /** All ids equal, mean cosine at least 0.999, none under 0.99. */
  passed: boolean;
  texts: number;
  idsEqual: number;
  meanCosine: number;
  minCosine: number;
}

/** A sentence encoder: texts in, vectors out. */
export class Encoder {
  private constructor();
  /**
   * Download, check and start the bundle in the folder at `url`, or whose bundle.json is there, relative to the page. A query
   * (a signature) goes with every file, and is not part of what the cache keeps. In Node also a folder's path.
   * @throws EncoderError damaged, unreachable, not for this module, or no worker can be started: one line with what to do.
   */
  static load(url: Address, options?: LoadOptions): Promise<Encoder>;
  /** Remove every file that a bundle left in this origin's cache. */
  static clearCache(): Promise<boolean>;

  readonly name: string;
  /** Numbers of a vector. */
  readonly width: number;
  /** Longest input in tokens; longer texts are cut, see `countTruncated`. */
  readonly maxLength: number;
  readonly languages: string[];
  /** Hash of the model that the bundle was exported from: a search index is made with one. */
  readonly source: string;
  /** Mean and standard deviation of the model's cosines of unrelated sentences, by which a search ranks; null: unknown. */
  readonly cosines: [mean: number, deviation: number] | null;
  readonly prompts: Record<string, string>;
  readonly defaultPrompt: string | null;
  /** Release of onnxruntime-web. */
  readonly runtime: string | null;
  readonly threads: number;
  /** The runtime's heap after the start, in bytes. */
  readonly memoryBytes: number;

  /**
   * The vector of a text, or vectors of texts, each in memory of its own. Calls may overlap: they take turns text by text.
   * @throws RangeError an unknown prompt or width; TypeError neither text nor texts, half of a surrogate pair, or an unknown
   * option; the signal's reason when cancelled.
   */
  encode(text: string, options?: VectorOptions): Promise<Float32Array>;
  encode(texts: readonly string[], options?: VectorOptions): Promise<Float32Array[]>;
  /** Ids of a text or of texts, special ids included. */
  tokenize(text: string, options?: TokenizeOptions): Promise<number[]>;
  tokenize(texts: readonly string[], options?: TokenizeOptions): Promise<number[][]>;
  /** Number of texts that `encode` cuts: prompt and special ids included, they have more than `maxLength` ids. */
  countTruncated(texts: string | readonly string[], options?: EncodeOptions): Promise<number>;
  /** The bundle's manifest and tokenizer, by which `search.js` splits texts as this encoder reads them: content by name. */
  tokenizerFiles(): Promise<Record<string, Uint8Array>>;
  /** Compare ids and vectors of the bundle's golden texts with those of the export. */
  selfTest(options?: { signal?: Signal }): Promise<SelfTest>;
  /** Stop the encoder and free its memory; calls under way fail. */
  close(): void;
}

/** Cosine of two vectors; 0 where one of them is zero. */
export function similarity(a: Float32Array, b: Float32Array): number;
/** A vector that was found: its place in the list, and its cosine to the query. */
export interface Hit {
  row: number;
  cosine: number;
}

/** The `k` vectors nearest to `query`, best first. Default: 10. */
export function topK(query: Float32Array, vectors: readonly Float32Array[], k?: number): Hit[];

/** Why a bundle or a text was refused: one line. */
export class EncoderError extends Error {}

export interface LoadOptions {
  /** Cancels the download and the start. */
  signal?: AbortSignal;
  /** Bytes so far, of all files together; files in the browser's cache count at once. */
  onProgress?: (progress: { file: string; loaded: number; total: number }) => void;
  /** Run in a worker of its own. Default: true in a page, false in a worker and in Node. */
  worker?: boolean;
  /** sha256 of bundle.json that the app expects; other bundles are refused, and a cached one starts without a network. */
  sha256?: string;
  /** Keep the files in the browser's cache, by hash. Default: true; needs https or localhost. */
  cache?: boolean;
  /** Address of onnxruntime-web's ort.wasm.bundle.min.mjs. Default: the bundle's copy, else the peer dependency. */
  runtime?: string | URL;
  /** Threads of the runtime; more than one needs a cross-origin isolated page. Default: 1. */
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
  signal?: AbortSignal;
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
   * Download, check and start the bundle in the folder at `url`, relative to the page.
   * @throws EncoderError damaged, unreachable, or not for this module.
   */
  static load(url: string | URL, options?: LoadOptions): Promise<Encoder>;
  /** Remove every file that a bundle left in this origin's cache. */
  static clearCache(): Promise<boolean>;

  readonly name: string;
  /** Numbers of a vector. */
  readonly width: number;
  /** Longest input in tokens; longer texts are cut. */
  readonly maxLength: number;
  readonly languages: string[];
  /** Hash of the model that the bundle was exported from: a search index is made with one. */
  readonly source: string;
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
  /** Compare ids and vectors of the bundle's golden texts with those of the export. */
  selfTest(options?: { signal?: AbortSignal }): Promise<SelfTest>;
  /** Stop the worker and free its memory; calls under way fail. */
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

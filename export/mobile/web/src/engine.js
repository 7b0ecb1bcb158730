// The encoder itself: texts to vectors with ONNX Runtime Web. It runs in a worker, or wherever it is opened.

import { BundleFiles } from "./bundle.js";
import { builtin, damaged, EncoderError, lineOf, textOf } from "./bytes.js";
import { Tokenizer } from "./tokenizer.js";

const RUNTIME = "web/runtime/ort.wasm.bundle.min.mjs", WASM = "web/runtime/ort-wasm-simd-threaded.wasm";
const GOLDEN = "golden.json";
const MAX_TOKENIZER_BYTES = 2 ** 28, MAX_GOLDEN_BYTES = 2 ** 24;
const PAGE_BYTES = 65536, LEAST_MEMORY = 512 * 2 ** 20;
const PAUSE_MS = 12; // messages of the page, a cancellation among them, are read at least this often

// The runtime has one heap per thread; it is made when the first session is.
const heaps = [];
let starting = Promise.resolve();

// ONNX Runtime asks for 4 GiB of address space, which phones may refuse: less is enough for the program at hand.
function withMemoryLimit(bytes, open) {
  const most = Math.ceil(bytes / PAGE_BYTES);
  const limited = async () => {
    const { Memory } = WebAssembly;
    WebAssembly.Memory = class extends Memory {
      constructor(wanted) {
        super(wanted.maximum > most ? { ...wanted, maximum: most } : wanted);
        heaps.push(this);
      }
    };
    try {
      return await open();
    } finally {
      WebAssembly.Memory = Memory;
    }
  };
  const mine = starting.then(limited);
  starting = mine.catch(() => {});
  return mine;
}

const importUrl = (url) => import(/* webpackIgnore: true */ /* @vite-ignore */ url);

// Service workers, an extension's background script among them, import nothing once they run.
const inServiceWorker = typeof ServiceWorkerGlobalScope === "function" && globalThis instanceof ServiceWorkerGlobalScope;
const SERVICE_WORKER = `a service worker imports nothing while it runs: import BUNDLE/${RUNTIME} in its script, and pass {runtime}`;

// Addresses under which the script in `bytes` can be imported, made one after the other: Node imports no blobs.
const ADDRESSES = [
  (bytes) => URL.createObjectURL(new Blob([bytes], { type: "text/javascript" })),
  (bytes) => `data:text/javascript;base64,${builtin("node:buffer").Buffer.from(bytes).toString("base64")}`,
];

// `source` is the runtime's address, or the imported module itself; `checked` are the bytes of the script at the address,
// as far as the bundle holds it.
async function loadRuntime(source, checked, threads) {
  if (source && typeof source === "object") {
    const module = source.InferenceSession ? source : source.default;
    if (module?.InferenceSession && module.env?.wasm) return module;
    throw new EncoderError("{runtime} is neither an address nor the module onnxruntime-web/wasm");
  }
  for (const addressOf of checked ? ADDRESSES : []) {
    let address;
    try {
      address = addressOf(checked);
      return await importUrl(address);
    } catch {
      // A content security policy without blob: takes it from its address.
    } finally {
      if (threads === 1 && address?.startsWith("blob:")) URL.revokeObjectURL(address); // more start from it too
    }
  }
  try {
    if (source) return await importUrl(source);
    // Bundlers that do not find the package leave the import as it is where its failure is handled like this.
    return await import("onnxruntime-web/wasm");
  } catch (error) {
    if (inServiceWorker) throw new EncoderError(SERVICE_WORKER);
    const advice = "export with --with-runtime, bundle it, or pass {runtime: URL}";
    throw new EncoderError(`${source ?? "onnxruntime-web"} is missing: ${source ? "not loaded" : advice} (${lineOf(error)})`);
  }
}

// The runtime waits without end for a thread that cannot start.
async function withThreads(threads, open) {
  const { Worker } = globalThis;
  if (threads === 1 || !Worker) return open();
  const line = "a thread of the runtime did not start: the content security policy's worker-src needs blob:, or pass {threads: 1}";
  const failed = new Promise((_, reject) => {
    globalThis.Worker = class extends Worker {
      constructor(...words) {
        super(...words);
        this.addEventListener("error", () => reject(new EncoderError(line)));
      }
    };
  });
  try {
    return await Promise.race([failed, open()]);
  } finally {
    globalThis.Worker = Worker;
  }
}

// The file that the tokenizer reads; none where it cannot be read.
const tokenizerOf = ({ tokenizer }) => (tokenizer.kind === "sentencepiece" ? tokenizer.file : tokenizer.compiled);

// Cosine of two vectors in double precision; two zero vectors agree, a zero and any other do not.
function exactCosine(a, b) {
  let dot = 0, aa = 0, bb = 0;
  for (let i = 0; i < a.length; ++i) {
    dot += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  if (aa === 0 && bb === 0) return 1;
  return aa === 0 || bb === 0 ? 0 : dot / Math.sqrt(aa) / Math.sqrt(bb);
}

// An empty module: a content security policy refuses it as it would the runtime's, but that one after minutes of download.
function requireWebAssembly() {
  try {
    new WebAssembly.Module(Uint8Array.of(0, 97, 115, 109, 1, 0, 0, 0));
  } catch {
    throw new EncoderError(
      typeof WebAssembly === "object"
        ? "the content security policy forbids WebAssembly: add 'wasm-unsafe-eval' to script-src, for msdc.js too"
        : "this browser has no WebAssembly",
    );
  }
}

export class Engine {
  // `source` is that of BundleFiles.
  static async open(source, { sha256: pinned, runtime, threads = 1, cache }, { signal, report }) {
    requireWebAssembly();
    const files = await BundleFiles.open(source, { pinned, cache, signal });
    const { manifest } = files, part = manifest.tokenizer, program = manifest.programs.onnx;
    if (!program) throw new EncoderError(`${manifest.name}: no ONNX program; export it with --target web`);
    const tokenizerFile = tokenizerOf(manifest);
    if (!tokenizerFile) throw new EncoderError(part.refused ?? `${manifest.name}: export it again`);
    if (files.bytes(tokenizerFile) > MAX_TOKENIZER_BYTES) damaged(tokenizerFile);
    const carried = !runtime && !inServiceWorker && files.has(RUNTIME);
    const wanted = [tokenizerFile, program.file, ...(program.data ? [program.data] : []), ...(carried ? [RUNTIME, WASM] : [])];
    const total = wanted.reduce((sum, name) => sum + files.bytes(name), 0);
    if (!carried) await loadRuntime(runtime); // a missing runtime is reported before megabytes are fetched
    let loaded = 0;
    const read = (name) => files.read(name, { signal, onBytes: (bytes) => report({ file: name, loaded: (loaded += bytes), total }) });
    // The bundle was exported with the runtime, and may have been copied without it.
    const readRuntime = (name) =>
      read(name).catch((error) => {
        if (signal?.aborted) throw error;
        throw new EncoderError(`${name} is missing or another file: copy the bundle's web/runtime too, or pass {runtime: URL} (${error.message})`);
      });
    const [pieces, graph, data, script, wasm] = await Promise.all([
      read(tokenizerFile),
      read(program.file),
      program.data ? read(program.data) : null,
      ...(carried ? [readRuntime(RUNTIME), readRuntime(WASM)] : []),
    ]);
    const engine = new Engine(files, await Tokenizer.open(pieces, tokenizerFile, manifest));
    const limit = Math.min(2 ** 32, Math.max(LEAST_MEMORY, 6 * (graph.length + (data?.length ?? 0))));
    const from = runtime ?? (carried ? files.url(RUNTIME) : null), weights = data && { path: program.data, data };
    await withMemoryLimit(limit, () => engine.start({ from, script, wasm, threads, graph, weights }));
    await files.dropOldFiles();
    signal?.throwIfAborted();
    return engine;
  }

  constructor(files, tokenizer) {
    this.files = files;
    this.manifest = files.manifest;
    this.tokenizer = tokenizer;
    this.turn = Promise.resolve();
  }

  async start({ from, script, wasm, threads, graph, weights }) {
    this.ort = await loadRuntime(from, script, threads);
    const { wasm: settings } = this.ort.env;
    settings.numThreads = threads;
    if (wasm) settings.wasmBinary = wasm.buffer;
    const options = { executionProviders: ["wasm"], externalData: weights ? [weights] : [], logSeverityLevel: 3 };
    try {
      this.session = await withThreads(threads, () => this.ort.InferenceSession.create(graph, options));
    } catch (error) {
      if (!/no available backend/.test(error.message)) throw error;
      const file = WASM.split("/").at(-1);
      throw new EncoderError(`onnxruntime-web does not start: is its ${file} next to the script that holds it? (${lineOf(error)})`);
    }
    if (wasm) settings.wasmBinary = undefined;
  }

  facts() {
    const { name, width, max_length: maxLength, truncate_dim, prompts, default_prompt, languages } = this.manifest;
    const runtime = this.ort.env.versions?.web ?? null, { mean, deviation } = this.manifest.cosines ?? {};
    return {
      name, width: truncate_dim ?? width, fullWidth: width, maxLength, prompts, defaultPrompt: default_prompt,
      languages, runtime, source: this.manifest.model.source_sha256,
      cosines: mean === undefined ? null : [mean, deviation], threads: this.ort.env.wasm.numThreads,
      memoryBytes: heaps.reduce((sum, memory) => sum + memory.buffer.byteLength, 0),
    };
  }

  // What a search index needs to split and to read texts as this model does: content by name.
  async tokenizerFiles() {
    const name = tokenizerOf(this.manifest);
    return { "bundle.json": this.files.manifestBytes, [name]: await this.files.read(name) };
  }

  ids(text, most = this.manifest.max_length) {
    return this.tokenizer.ids(text, most);
  }

  prompt({ prompt, promptName }) {
    const { prompts, default_prompt: usual } = this.manifest;
    if (prompt !== undefined && promptName !== undefined) throw new TypeError("give either prompt or promptName");
    if (prompt !== undefined) return prompt;
    const name = promptName ?? usual;
    if (name === null || name === undefined) return "";
    if (Object.hasOwn(prompts, name)) return prompts[name];
    throw new RangeError(`prompt ${JSON.stringify(name)} is unknown; known: ${Object.keys(prompts).join(", ") || "none"}`);
  }

  // Tokens of a prompt that the program does not pool: the prompt alone with its special ids, but for the last one.
  promptTokens(prompt) {
    if (this.manifest.include_prompt || !prompt) return 0;
    const ids = this.ids(prompt), none = this.ids("");
    return ids.length - (none.length && ids.length && ids.at(-1) === none.at(-1) ? 1 : 0);
  }

  // `text` is what an error names.
  async run(ids, promptTokens = 0, text = "a text") {
    // Static embeddings add no special ids: a blank text has none, and the vector zero.
    if (!ids.length) return new Float32Array(this.manifest.width);
    const { Tensor } = this.ort, shape = [1, ids.length];
    const feeds = {
      input_ids: new Tensor("int64", BigInt64Array.from(ids, BigInt), shape),
      attention_mask: new Tensor("int64", new BigInt64Array(ids.length).fill(1n), shape),
    };
    if (!this.manifest.include_prompt) feeds.prompt_tokens = new Tensor("int64", BigInt64Array.of(BigInt(promptTokens)), [1]);
    // A session takes one call at a time; calls take turns text by text, so that a query need not wait for a long list.
    const mine = this.turn.then(() => {
      if (!this.session) throw new EncoderError("the encoder is closed");
      return this.session.run(feeds, ["sentence_embedding"]);
    });
    this.turn = mine.catch(() => {});
    const vector = (await mine).sentence_embedding.data;
    if (!vector.every(Number.isFinite)) {
      throw new EncoderError(`${this.manifest.name}: the vector of ${text} holds NaN or infinity; the model is damaged`);
    }
    return vector;
  }

  async tokenize(texts, options) {
    const first = this.prompt(options), most = options.maxLength ?? this.manifest.max_length;
    const least = this.ids("").length; // special ids alone
    if (!(most >= least)) throw new RangeError(`maxLength is not ${least} or more`);
    return texts.map((text) => this.ids(first + text, most));
  }

  // Of texts with their prompt, how many have more ids than the model reads.
  async countTruncated(texts, options) {
    const first = this.prompt(options), most = this.manifest.max_length;
    return texts.filter((text) => this.ids(first + text, Infinity).length > most).length;
  }

  // Vectors of N texts, one after the other in a Float32Array.
  async encode(texts, options, { signal, report }) {
    const first = this.prompt(options), skipped = this.promptTokens(first);
    const { width: most, truncate_dim: usual } = this.manifest;
    const width = options.truncateDim ?? usual ?? most;
    if (!(Number.isInteger(width) && width >= 1 && width <= most)) throw new RangeError(`truncateDim is not 1 to ${most}`);
    const values = new Float32Array(texts.length * width);
    let paused = performance.now();
    for (let i = 0; i < texts.length; ++i) {
      signal?.throwIfAborted();
      values.set((await this.run(this.ids(first + texts[i]), skipped, `text ${i + 1}`)).subarray(0, width), i * width);
      if (performance.now() - paused < PAUSE_MS) continue;
      report({ done: i + 1, total: texts.length });
      await pause();
      paused = performance.now();
    }
    signal?.throwIfAborted();
    return { values, width };
  }

  // Compare ids and vectors of the golden texts with those that the export wrote.
  async selfTest(_, { signal }) {
    if (this.files.bytes(GOLDEN) > MAX_GOLDEN_BYTES) damaged(GOLDEN);
    const golden = JSON.parse(textOf(await this.files.read(GOLDEN, { signal })));
    const raw = Uint8Array.from(atob(golden.vectors.onnx), (letter) => letter.charCodeAt(0));
    const expected = new Float32Array(raw.buffer), { width } = golden;
    const skipped = this.promptTokens(this.prompt({}));
    let idsEqual = 0, sum = 0, minCosine = 1;
    for (let i = 0; i < golden.texts.length; ++i) {
      signal?.throwIfAborted();
      // Golden texts hold the default prompt already.
      const row = this.ids(golden.texts[i]);
      idsEqual += row.join() === golden.ids[i].join() ? 1 : 0;
      const found = await this.run(golden.ids[i], skipped, `golden text ${i + 1}`);
      const cosine = exactCosine(found, expected.subarray(i * width, (i + 1) * width));
      sum += cosine;
      minCosine = Math.min(minCosine, cosine);
      if (i % 8 === 7) await pause();
    }
    const texts = golden.texts.length, meanCosine = sum / texts;
    const passed = idsEqual === texts && meanCosine >= 0.999 && minCosine >= 0.99;
    return { passed, texts, idsEqual, meanCosine, minCosine };
  }

  // Calls under way fail at their next text.
  close() {
    const { session } = this;
    this.session = null;
    this.turn = this.turn.then(() => session.release()).catch(() => {});
  }
}

// Let waiting messages be handled; timers are clamped to milliseconds, messages are not, but Jest's page has none.
function pause() {
  return new Promise((resolve) => {
    if (typeof MessageChannel !== "function") return void setTimeout(resolve);
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

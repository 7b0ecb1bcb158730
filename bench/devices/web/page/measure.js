// The measuring worker, appended to the web module's source: `Engine`, `download` and `utf8` are in scope.

const BLOCK = 8, STEADY_BLOCKS = 4, STEADY = 0.03, MOST_WARM_CALLS = 600, MOST_WARM_MS_PER_RUN = 150, COLD_CALLS = 10;
const STEPS_PER_SAMPLE = 20, MOST_CALLS_PER_SAMPLE = 256;
const REPORT_MS = 500;

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

// What the page shows: `done` is the part of the whole, 0 to 1. At most twice a second, and never while a call is timed.
let reported = -Infinity;
function report(phase, text, done) {
  if (performance.now() - reported < REPORT_MS) return;
  reported = performance.now();
  globalThis.postMessage({ phase, text, done });
}

// The smallest step that the clock makes, in ms: browsers coarsen it.
function clockStep() {
  let step = Infinity;
  for (let i = 0; i < 40; ++i) {
    const start = performance.now();
    let now = start;
    while (now === start) now = performance.now();
    step = Math.min(step, now - start);
  }
  return step;
}

async function timed(call, times) {
  const start = performance.now();
  for (let i = 0; i < times; ++i) await call(i);
  return (performance.now() - start) / times;
}

// Warm until medians of blocks settle, then time `runs` samples. A sample is the mean of as many calls as the clock needs.
async function sample(call, { runs, warmup, step }, report) {
  const cold = [], medians = [];
  let calls = 0, settled = false;
  const start = performance.now();
  while (calls < warmup || !settled) {
    const block = [];
    for (let i = 0; i < BLOCK; ++i) block.push(await timed(() => call(calls + i), 1));
    calls += BLOCK;
    report(Math.min(0.5, calls / (2 * MOST_WARM_CALLS)));
    if (cold.length < COLD_CALLS) cold.push(...block.slice(0, COLD_CALLS - cold.length));
    medians.push(median(block));
    const recent = medians.slice(-STEADY_BLOCKS);
    const spread = (Math.max(...recent) - Math.min(...recent)) / (median(recent) || 1);
    settled = recent.length === STEADY_BLOCKS && (spread < STEADY || Math.max(...recent) - Math.min(...recent) <= step);
    if (calls >= warmup && (calls >= MOST_WARM_CALLS || performance.now() - start > runs * MOST_WARM_MS_PER_RUN)) break;
  }
  const usual = Math.max(medians.at(-1), step / MOST_CALLS_PER_SAMPLE);
  const perSample = Math.min(MOST_CALLS_PER_SAMPLE, Math.max(1, Math.ceil((STEPS_PER_SAMPLE * step) / usual)));
  const samples = [];
  for (let i = 0; i < runs; ++i) {
    samples.push(await timed((k) => call(i * perSample + k), perSample));
    report(0.5 + (i + 1) / (2 * runs));
  }
  return { samples, warmup: calls, settled, cold, calls_per_sample: perSample };
}

function base64(vectors, width) {
  const values = new Float32Array(vectors.length * width);
  vectors.forEach((vector, i) => values.set(vector, i * width));
  const bytes = new Uint8Array(values.buffer);
  let text = "";
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
}

async function vectorsOf(engine, rows, promptTokens, report) {
  const out = [];
  for (const row of rows) {
    out.push((await engine.run(row, promptTokens)).slice());
    report(out.length / rows.length);
  }
  return base64(out, engine.manifest.width);
}

// Fetch `files` {name: bytes} and answer the encoder's requests from memory until the returned function is called: the
// time to load must not depend on the network.
async function downloadFiles(files, report) {
  const network = globalThis.fetch, held = new Map();
  const total = Object.values(files).reduce((sum, size) => sum + size, 0);
  let loaded = 0;
  for (const [name, size] of Object.entries(files)) {
    const url = new URL(name, globalThis.location.href).href, answer = await network(url);
    if (!answer.ok) throw new Error(`${name}: status ${answer.status}`);
    const bytes = new Uint8Array(size), reader = answer.body.getReader();
    let at = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      if (at + value.length > size) throw new Error(`${name}: more than ${size} bytes`);
      bytes.set(value, at);
      at += value.length;
      report(loaded += value.length, total);
    }
    if (at < size) throw new Error(`${name}: ${at} of ${size} bytes`);
    held.set(url, [bytes, { headers: { "Content-Type": answer.headers.get("Content-Type") } }]);
  }
  globalThis.fetch = async (url, options) => (held.has(`${url}`) ? new Response(...held.get(`${url}`)) : network(url, options));
  return () => void (globalThis.fetch = network);
}

async function measure() {
  const request = await (await fetch("request.json")).json();
  const step = clockStep(), limits = { runs: request.runs, warmup: request.warmup, step };
  const base = new URL("bundle/", globalThis.location.href).href;
  const options = { threads: request.threads, cache: false, runtime: new URL("runtime/ort.mjs", globalThis.location.href).href };
  const release = await downloadFiles(request.files, (loaded, total) => report("load", "Downloading", (0.2 * loaded) / total));
  await import(options.runtime);
  const start = performance.now();
  const engine = await Engine.open({ folder: base, ask: download }, options, { report: () => {} });
  const loaded = { load_ms: performance.now() - start, loaded_heap_bytes: engine.facts().memoryBytes };
  release();
  const shortest = request.rows.reduce((a, b) => (b.length < a.length ? b : a));
  loaded.first_ms = await timed(() => engine.run(shortest), 1);
  const steps = request.rows.length + 3;
  let finished = 0;
  const during = (text) => (part) => report("warm", text, 0.2 + (0.8 * (finished + part)) / steps);
  const latency = [];
  for (const row of request.rows) {
    if (request.cooldown_ms) await new Promise((resolve) => setTimeout(resolve, request.cooldown_ms));
    latency.push({ length: row.length, ...(await sample(() => engine.run(row), limits, during(`Measuring texts of ${row.length} tokens`))) });
    ++finished;
  }
  const { usual } = request, text = (i) => usual[i % usual.length];
  const tokenize = await sample((i) => engine.ids(text(i)), limits, during("Measuring the tokenizer"));
  ++finished;
  const pipeline = await sample((i) => engine.run(engine.ids(text(i))), limits, during("Measuring ordinary sentences"));
  ++finished;
  const golden = request.golden.map((line) => engine.ids(line)), rows = request.texts.map((line) => engine.ids(line));
  const share = golden.length / (golden.length + rows.length), checking = during("Checking the results");
  return {
    ...loaded,
    latency,
    tokenize,
    pipeline,
    clock_step_ms: step,
    worker: true,
    threads: engine.facts().threads,
    runtime: engine.facts().runtime,
    golden: {
      ids: golden,
      // Golden texts begin with the default prompt.
      vectors: await vectorsOf(engine, golden, engine.promptTokens(engine.prompt({})), (part) => checking(part * share)),
    },
    vectors: await vectorsOf(engine, rows, engine.promptTokens(request.prompt), (part) => checking(share + part * (1 - share))),
    heap_bytes: engine.facts().memoryBytes,
  };
}

if (globalThis.name === "msdc-bench") {
  measure().then(
    (found) => globalThis.postMessage(found),
    (error) => globalThis.postMessage({ error: String(error?.message ?? error) }),
  );
}

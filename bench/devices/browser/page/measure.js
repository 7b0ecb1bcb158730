// The measuring worker, appended to the web module's source: `Engine` and `utf8` are in scope.

const BLOCK = 8, STEADY_BLOCKS = 4, STEADY = 0.03, MOST_WARM_CALLS = 600, MOST_WARM_MS_PER_RUN = 150, COLD_CALLS = 10;
const STEPS_PER_SAMPLE = 20, MOST_CALLS_PER_SAMPLE = 256, VECTORS_PER_PAUSE = 16;

const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
};

const tell = (name, text) => globalThis.postMessage({ phase: name, text });

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
async function sample(call, { runs, warmup, step }) {
  const cold = [], medians = [];
  let calls = 0, settled = false;
  const start = performance.now();
  while (calls < warmup || !settled) {
    const block = [];
    for (let i = 0; i < BLOCK; ++i) block.push(await timed(() => call(calls + i), 1));
    calls += BLOCK;
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
  for (let i = 0; i < runs; ++i) samples.push(await timed((k) => call(i * perSample + k), perSample));
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

async function vectorsOf(engine, rows, what) {
  const out = [];
  for (const row of rows) {
    out.push((await engine.run(row)).slice());
    if (out.length % VECTORS_PER_PAUSE === 0) tell("warm", `${what}: ${out.length} of ${rows.length}`);
  }
  return base64(out, engine.manifest.width);
}

async function measure() {
  const request = await (await fetch("request.json")).json();
  const step = clockStep(), limits = { runs: request.runs, warmup: request.warmup, step };
  const base = new URL("bundle/", globalThis.location.href).href;
  const options = { threads: request.threads, cache: false, runtime: new URL("runtime/ort.mjs", globalThis.location.href).href };
  tell("load", "Loading");
  const start = performance.now();
  const engine = await Engine.open(base, options, { report: () => {} });
  const loaded = { load_ms: performance.now() - start, loaded_heap_bytes: engine.facts().memoryBytes };
  const shortest = request.rows.reduce((a, b) => (b.length < a.length ? b : a));
  loaded.first_ms = await timed(() => engine.run(shortest), 1);
  const latency = [];
  for (const row of request.rows) {
    tell("warm", `${row.length} tokens`);
    if (request.cooldown_ms) await new Promise((resolve) => setTimeout(resolve, request.cooldown_ms));
    latency.push({ length: row.length, ...(await sample(() => engine.run(row), limits)) });
  }
  tell("warm", "tokens of texts");
  const { usual } = request, text = (i) => usual[i % usual.length];
  const tokenize = await sample((i) => engine.ids(text(i)), limits);
  const pipeline = await sample((i) => engine.run(engine.ids(text(i))), limits);
  const golden = request.golden.map((line) => engine.ids(line));
  return {
    ...loaded,
    latency,
    tokenize,
    pipeline,
    clock_step_ms: step,
    worker: true,
    threads: engine.facts().threads,
    runtime: engine.facts().runtime,
    golden: { ids: golden, vectors: await vectorsOf(engine, golden, "golden texts") },
    vectors: await vectorsOf(engine, request.texts.map((line) => engine.ids(line)), "texts of the tasks"),
    heap_bytes: engine.facts().memoryBytes,
  };
}

if (globalThis.name === "msdc-bench") {
  measure().then(
    (found) => globalThis.postMessage(found),
    (error) => globalThis.postMessage({ error: String(error?.message ?? error) }),
  );
}

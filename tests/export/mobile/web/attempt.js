// What the module at `base` makes of a bundle: facts of its encoder, or the refusal.
export async function attempt(base, url, options = {}) {
  const { Encoder, EncoderError } = await import(`${base}/web/msdc.js`);
  const { Worker } = globalThis;
  let workers = 0;
  if (Worker) {
    globalThis.Worker = class extends Worker {
      constructor(...words) {
        super(...words);
        ++workers;
      }
    };
  }
  try {
    const encoder = await Encoder.load(url, { cache: false, ...options });
    const found = { passed: (await encoder.selfTest()).passed, isHere: workers === 0 };
    encoder.close();
    return found;
  } catch (error) {
    return { name: error.name, message: error.message, isOurs: error instanceof EncoderError };
  } finally {
    if (Worker) globalThis.Worker = Worker;
  }
}

/** The same in a frame, whose script comes from `site`. */
export function inFrame(site, properties, url = `${site}/bundle`) {
  const frame = document.createElement("iframe");
  const script = `import { attempt } from "${site}/page/attempt.js";
    try { parent.postMessage(await attempt("${site}/bundle", "${url}"), "*"); } catch (error) { parent.postMessage(String(error), "*"); }`;
  const html = `<!doctype html><meta charset="utf-8"><script type="module">${script}<` + "/script>";
  const addresses = {
    srcdoc: () => ({ srcdoc: html }),
    data: () => ({ src: `data:text/html,${encodeURIComponent(html)}` }),
    blob: () => ({ src: URL.createObjectURL(new Blob([html], { type: "text/html" })) }),
  };
  const { kind, ...others } = properties;
  Object.assign(frame, others, addresses[kind]());
  return new Promise((resolve) => {
    addEventListener("message", ({ data }) => resolve(data), { once: true });
    document.body.append(frame);
  });
}

/** A worker that the page makes, by `how` it is handed over; `said` is what the app's own messages get. */
export async function withOwnWorker(base, script, how) {
  const { Encoder, EncoderError, similarity } = await import(`${base}/web/msdc.js`);
  const made = [];
  const make = () => {
    made.push(new Worker(script, { type: "module" }));
    return made.at(-1);
  };
  const options = { cache: false, worker: how === "function" ? make : how === "promise" ? async () => make() : make() };
  try {
    const encoders = [await Encoder.load(base, options), await Encoder.load(base, options)];
    const rows = await Promise.all(encoders.map((encoder) => encoder.encode(["a cat sat", "the dog"])));
    encoders[0].close();
    const later = await encoders[1].encode("a cat sat");
    encoders[1].close();
    const said = await new Promise((resolve) => {
      made[0].addEventListener("message", ({ data }) => resolve(data));
      made[0].postMessage("hello");
      setTimeout(() => resolve("ended"), 1000);
    });
    return { workers: made.length, same: similarity(rows[0][0], later) > 0.9999, said };
  } catch (error) {
    return { name: error.name, message: error.message, isOurs: error instanceof EncoderError };
  }
}

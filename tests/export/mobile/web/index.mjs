// node index.mjs MODULE-FOLDER: a search index by lines of JSON. A request is [number, method, ...arguments]; where texts are to
// be encoded, the answer is {encode, source}, and the next line has their vectors.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const { openIndex } = await import(pathToFileURL(`${process.argv[2]}/search.js`));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const tell = (message) => process.stdout.write(`${JSON.stringify(message)}\n`);
const indexes = new Map(), encoders = new Map();

function encoderOf(model) {
  if (!model) return null;
  const { source, folder, files } = model;
  if (!encoders.has(source)) {
    encoders.set(source, {
      source,
      async encode(texts) {
        const list = Array.isArray(texts) ? texts : [texts];
        tell({ encode: list, source });
        const rows = JSON.parse((await lines.next()).value);
        if (!rows) throw new Error("interrupted");
        const vectors = rows.map((row) => Float32Array.from(row));
        return Array.isArray(texts) ? vectors : vectors[0];
      },
      tokenizerFiles: async () => Object.fromEntries(files.map((name) => [name, new Uint8Array(readFileSync(`${folder}/${name}`))])),
    });
  }
  return encoders.get(source);
}

const methods = {
  async open(number, file, model, check) {
    indexes.set(number, await openIndex(file && new Uint8Array(readFileSync(file)), encoderOf(model), { check }));
  },
  rebuild: (number, model) => indexes.get(number).rebuild(encoderOf(model), { onProgress: (progress) => tell({ progress }) }),
  length: (number) => indexes.get(number).count(),
  bytes: async (number) => Buffer.from(await indexes.get(number).bytes()).toString("base64"),
};

for (;;) {
  const { value: line, done } = await lines.next();
  if (done) break;
  const [number, method, ...values] = JSON.parse(line);
  try {
    const work = methods[method] ?? ((at, ...rest) => indexes.get(at)[method](...rest));
    tell({ value: (await work(number, ...values)) ?? null });
  } catch (error) {
    tell({ error: { name: error.name, message: error.message } });
  }
}

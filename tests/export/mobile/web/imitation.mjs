// node imitation.mjs REQUEST: the module where a page is imitated, as JSON on standard output.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const request = JSON.parse(readFileSync(process.argv[2], "utf8"));
const location = new URL("http://localhost:3000/");
const imitated = { document: { baseURI: location.href }, window: globalThis, location };
for (const name of request.with) Object.defineProperty(globalThis, name, { value: imitated[name], configurable: true });
for (const name of request.without) delete globalThis[name];
delete URL.createObjectURL;
const { Encoder } = await import(pathToFileURL(request.module));
const said = async (url, options) => {
  try {
    const encoder = await Encoder.load(url, options);
    const { passed } = await encoder.selfTest();
    encoder.close();
    return passed ? "passed" : "failed";
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
};
const loaded = [];
for (const url of request.addresses) loaded.push(await said(url, { signal: new AbortController().signal }));
const [worker, absent] = [await said(request.addresses[0], { worker: true }), await said("http://127.0.0.1:9/nothing")];
console.log(JSON.stringify({ loaded, worker, absent }));
process.exit(0);

// The table of tests/helpers/hostile_inputs.py in a page: texts, damaged bundles, damaged indexes.
import { Encoder, EncoderError } from "/bundle/web/msdc.js";
import { openIndex } from "/bundle/web/search.js";

const { texts, queries, halves, nul, bundles, indexes, documents } = await (await fetch("/request/request.json")).json();
const refused = async (work) => {
  try {
    await work();
    return "accepted";
  } catch (error) {
    return error instanceof EncoderError || error instanceof TypeError ? error.message : `${error.name}: ${error.message}`;
  }
};

export default async function run() {
  const encoder = await Encoder.load("/bundle", { cache: false });
  const found = { rows: await encoder.tokenize(texts, { prompt: "" }), bundles: {}, indexes: {}, halves: [], nul: [] };
  found.vectors = (await encoder.encode(texts, { prompt: "" })).map((vector) => [...vector]);
  const index = await openIndex(null, encoder);
  found.count = await index.add(documents);
  const made = await index.bytes();
  for (const [list, bads] of [[found.halves, halves], [found.nul, [nul]]]) for (const bad of bads) {
    const works = [
      () => index.add([{ id: bad, text: "fine" }]), () => index.update([{ id: bad, text: "fine" }]), () => index.remove([bad]),
      () => index.add([{ text: "fine", note: bad }]), () => index.search("fine", { where: { note: bad } }),
      () => index.search("fine", { where: { [bad]: "x" } }),
    ];
    if (list === found.halves) works.push(
      () => encoder.encode(bad), () => encoder.tokenize(["a", bad]), () => encoder.encode("a", { prompt: bad }),
      () => index.add([bad]), () => index.add([{ text: "fine", title: bad }]), () => index.search(bad, { mode: "words" }),
    );
    for (const work of works) list.push(await refused(work));
  }
  found.queries = [];
  for (const text of queries) found.queries.push((await index.search(text, { top: 3 })).map(({ id }) => id));
  found.same = made.length === (await index.bytes()).length;
  found.bytes = btoa(Array.from(made, (byte) => String.fromCharCode(byte)).join(""));
  for (const name of bundles) found.bundles[name] = await refused(async () => {
    const opened = await Encoder.load(`/bundles/${name}`, { cache: false });
    await opened.selfTest().finally(() => opened.close());
  });
  const answers = async (url) => {
    const opened = await openIndex(url, encoder), all = [];
    for (const mode of ["words", "both"]) all.push(await opened.search("the ticket", { mode, top: 9 }));
    opened.close();
    return JSON.stringify(all);
  };
  const wanted = await answers("/request/whole.sqlite");
  for (const name of indexes) found.indexes[name] = await refused(async () => {
    if ((await answers(`/indexes/${name}`)) !== wanted) throw new Error("other answers");
  });
  return found;
}

// The search index in a page: the desktop's file and its questions, then one that is made here.
import { Encoder } from "/bundle/web/msdc.js";
import { openIndex } from "/bundle/web/search.js";

const { documents, questions } = await (await fetch("/index/request.json")).json();
const refused = async (work) => {
  try {
    await work();
    return null;
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
};

export default async function run() {
  const encoder = await Encoder.load("/bundle");
  const answers = async (index) => {
    const found = [];
    for (const [query, options] of questions) found.push(await index.search(query, options));
    return found;
  };
  const desktop = await openIndex("/index/desktop.sqlite", encoder), made = await openIndex(null, encoder);
  const found = { desktop: await answers(desktop), empty: await made.search("a cat") };
  found.added = [await made.add(documents), made.length];
  found.made = await answers(made);
  found.bytes = btoa(Array.from(made.bytes(), (byte) => String.fromCharCode(byte)).join(""));
  found.refused = {
    twice: await refused(() => made.add([{ id: "d1", text: "x" }])),
    blank: await refused(() => made.add([" "])),
    query: await refused(() => made.search(" ")),
    lost: await refused(() => openIndex("/index/lost.sqlite", encoder)),
    column: await refused(() => made.search("x", { where: { lnag: "de" } })),
    nan: await refused(() => made.add([{ text: "x", year: NaN }])),
    half: await refused(() => made.add(["cut \ud83d"])),
    mode: await refused(() => made.search("x", { mode: "all" })),
    other: await refused(() => openIndex("/index/other.sqlite", encoder)),
    broken: await refused(async () => (await openIndex("/index/broken.sqlite", encoder)).search("a cat")),
    none: await refused(() => openIndex(new Uint8Array(5000).fill(7), encoder)),
    sqlite: await refused(() => openIndex(null, encoder, { sqlite: "/nothing.mjs" })),
  };
  // What is kept is opened again, changed, and found.
  const again = await openIndex(made.bytes(), encoder);
  await again.update([{ id: "d1", text: "Bananas are yellow." }]);
  found.changed = [again.remove(["d2", "none"]), again.length, (await again.search("bananas", { top: 1 }))[0].id];
  await again.add(["no id", { id: 9007199254740991, text: "a large one" }, "another without"]);
  await again.update([{ id: "x", text: "first" }, { id: "x", text: "second" }]);
  found.ids = (await again.search("second first id large another", { mode: "words", top: 9 })).map(({ id, text }) => [id, text]).sort();
  found.gone = (await again.search("parking level", { mode: "words" })).length;
  again.close();
  return found;
}

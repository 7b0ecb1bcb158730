// The search index in a page: the desktop's file and its questions, then one that is made here.
import { Encoder } from "/bundle/web/msdc.js";
import { openIndex } from "/bundle/web/search.js";

const dates = (name, value) => (value && typeof value === "object" && Object.keys(value).join() === "date" ? new Date(value.date) : value);
const { documents, questions } = JSON.parse(await (await fetch("/index/request.json")).text(), dates);
const refused = async (work) => {
  try {
    await work();
    return null;
  } catch (error) {
    return `${error.name}: ${error.message}`;
  }
};

// An index of another model: its words at once, its vectors after a rebuild that is interrupted once.
async function rebuilt(encoder, answers) {
  const index = await openIndex("/index/other.sqlite", null), before = (await index.ids()).length;
  const words = [await index.search("parking", { mode: "words" }), await index.search("parking")].map(JSON.stringify);
  const refusals = [await refused(() => index.search("parking", { mode: "vectors" })), await refused(() => index.add(["a"]))];
  const control = new AbortController(), calls = [];
  control.abort(new Error("enough"));
  refusals.push(await refused(() => index.rebuild(encoder, { signal: control.signal })));
  const stored = await openIndex(await index.bytes(), null);
  const count = await stored.rebuild(encoder, { onProgress: (progress) => calls.push(progress) });
  const again = await openIndex(await stored.bytes(), encoder);
  return {
    before, words, refusals, count, calls, again: await stored.rebuild(encoder), document: await again.get("d1"), none: await again.get("x"),
    answers: await answers(again),
  };
}

export default async function run() {
  const encoder = await Encoder.load("/bundle");
  const answers = async (index) => {
    const found = [];
    for (const [query, options] of questions) found.push(await index.search(query, options));
    return found;
  };
  const desktop = await openIndex("/index/desktop.sqlite", encoder, { check: false }), made = await openIndex(null, encoder);
  await desktop.check();
  const found = { desktop: await answers(desktop), empty: await made.search("a cat") };
  found.added = [await made.add(documents), await made.count()];
  found.made = await answers(made);
  found.bytes = btoa(Array.from(await made.bytes(), (byte) => String.fromCharCode(byte)).join(""));
  found.refused = {
    twice: await refused(() => made.add([{ id: "d1", text: "x" }])),
    blank: await refused(() => made.add([" "])),
    query: await refused(() => made.search(" ")),
    lost: await refused(() => openIndex("/index/lost.sqlite", encoder)),
    column: await refused(() => made.search("x", { where: { lnag: "de" } })),
    nan: await refused(() => made.add([{ text: "x", year: NaN }])),
    half: await refused(() => made.add(["cut \ud83d"])),
    mode: await refused(() => made.search("x", { mode: "all" })),
    syntax: await refused(() => made.search("x", { syntax: "none" })),
    offset: await refused(() => made.search("x", { offset: -1 })),
    top: await refused(() => made.search("x", { top: 0 })),
    no_value: await refused(() => made.search("x", { where: { lang: [] } })),
    key: await refused(() => made.search("x", { where: { year: { least: 1, not: 2 } } })),
    nested: await refused(() => made.search("x", { where: { year: [[1, 2]] } })),
    undefined: await refused(() => made.search("x", { where: { year: undefined } })),
    quoted_name: await refused(() => made.search("x", { where: { 'a"b': 1 } })),
    bad_date: await refused(() => made.add([{ text: "x", day: new Date(NaN) }])),
    other: await refused(() => openIndex("/index/other.sqlite", encoder)),
    broken: await refused(async () => (await openIndex("/index/broken.sqlite", encoder)).search("a cat")),
    unchecked: await refused(async () => (await openIndex("/index/broken.sqlite", encoder, { check: false })).search("a cat")),
    none: await refused(() => openIndex(new Uint8Array(5000).fill(7), encoder)),
    wasm: await refused(() => openIndex(null, encoder, { wasm: "/nothing.wasm" })),
  };
  // What is kept is opened again, changed, and found.
  const again = await openIndex(await made.bytes(), encoder);
  await again.update([{ id: "d1", text: "Bananas are yellow." }]);
  found.changed = [await again.remove(["d2", "none"]), await again.count(), (await again.search("bananas", { top: 1 }))[0].id];
  found.stale = (await again.search("parking level", { mode: "words", top: 99 })).some(({ id }) => id === "d1");
  const numbered = { id: 9007199254740991, text: "unnumbered large" };
  await again.add(["unnumbered first", numbered, "unnumbered second"]);
  await again.update(["unnumbered lost", "unnumbered last"].map((text) => ({ id: "x", text })));
  const ids = async () => (await again.search("unnumbered", { mode: "words", top: 9 })).map(({ id, text }) => [id, text.split(" ")[1]]).sort();
  found.ids = await ids();
  const when = new Date("2031-05-31T10:00+02:00"), later = new Date("2031-05-31T08:00:01Z");
  await again.add([{ id: "dated", text: "An entry of a day.", until: when }]);
  const after = async (least) => (await again.search("entry", { where: { until: { least } } })).map(({ id, metadata }) => [id, metadata.until]);
  found.dated = [(await after(when))[0], await after(later)];
  await again.add([{ id: "large", text: "Much metadata.", note: "x".repeat(1e5) }]);
  await again.remove(["large"]);
  found.sizes = [(await again.bytes()).length];
  await again.compact();
  found.sizes.push((await again.bytes()).length);
  const compacted = await openIndex(await again.bytes(), encoder);
  found.compacted = [await compacted.count(), (await compacted.search("unnumbered", { mode: "words" })).length];
  await again.close();
  found.closed = await refused(() => again.search("unnumbered"));
  const calls = [], control = new AbortController(), many = await openIndex(null, encoder);
  const rows = Array.from({ length: 600 }, (_, row) => ({ id: `m${row}`, text: `Document ${row % 7} of many.` }));
  found.many = [await many.add(rows, { onProgress: (progress) => calls.push(progress) }), calls];
  const stop = ({ done }) => done === 256 && control.abort(new Error("enough"));
  found.stopped = [await refused(() => many.update(rows, { onProgress: stop, signal: control.signal })), await many.count()];
  found.rebuilt = await rebuilt(encoder, answers);
  return found;
}

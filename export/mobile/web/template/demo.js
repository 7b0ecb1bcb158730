import { Encoder, topK } from "./msdc.js";

document.getElementById("help").remove(); // this script and the module are there

const NOTES = [
  "Buy milk, eggs and bread on the way home",
  "Dentist appointment on Tuesday at nine",
  "Passwort für das WLAN im Büro ändern",
  "Der Zug nach München fährt um 7:42 Uhr von Gleis 3",
  "Llamar a mamá por su cumpleaños",
  "Receta: arroz con verduras y limón",
  "Réserver une table pour quatre personnes samedi soir",
  "Le chat doit aller chez le vétérinaire",
  "Pagare la bolletta della luce entro venerdì",
  "De fiets heeft een lekke band",
  "Yarın toplantıdan önce raporu bitir",
  "حجز تذاكر الطيران إلى القاهرة",
  "Idea: a garden with herbs on the balcony",
  "Return the library books before the end of the month",
  "Training plan: run five kilometres three times a week",
  "Ask the landlord about the broken heating",
];
const MIB = 2 ** 20;
const [query, state, progress, hits, area] = ["query", "state", "progress", "hits", "notes"].map((id) => document.getElementById(id));

const RELEVANT = 1.5; // deviations above unrelated sentences, as in an index

let encoder, notes = [], vectors = [];
let indexing = new AbortController(), searching = new AbortController();

function say(text, failed = false) {
  state.textContent = text;
  state.classList.toggle("failed", failed);
}

function show(found) {
  hits.replaceChildren(
    ...found.map(({ text, cosine }) => {
      const item = document.createElement("li"), line = document.createElement("span");
      line.textContent = text;
      item.append(line);
      if (cosine !== undefined) {
        const number = document.createElement("b"), bar = document.createElement("i");
        number.textContent = cosine.toFixed(2);
        bar.style.width = `${Math.max(0, Math.min(1, cosine)) * 100}%`;
        item.append(number, bar);
      }
      return item;
    }),
  );
}

async function index() {
  indexing.abort();
  indexing = new AbortController();
  const lines = area.value.split("\n").map((line) => line.trim()).filter(Boolean), { signal } = indexing;
  const started = performance.now();
  const onProgress = ({ done, total }) => say(`Indexing ${done} of ${total} notes`);
  const rows = await encoder.encode(lines, { signal, onProgress });
  [notes, vectors] = [lines, rows];
  say(`${notes.length} notes indexed in ${Math.round(performance.now() - started)} ms`);
  await search();
}

async function search() {
  searching.abort();
  searching = new AbortController();
  const text = query.value.trim(), { signal } = searching;
  if (!text) return show(notes.map((note) => ({ text: note })));
  const started = performance.now();
  const vector = await encoder.encode(text, { signal });
  const [mean, deviation] = encoder.cosines ?? [-1, 0], least = mean + RELEVANT * deviation;
  const has = (note) => note.toLowerCase().includes(text.toLowerCase());
  const found = topK(vector, vectors, 8).filter(({ row, cosine }) => cosine >= least || has(notes[row]));
  const took = performance.now() - started;
  show(found.map(({ row, cosine }) => ({ text: notes[row], cosine })));
  say(`${found.length || "Nothing relevant: none"} of ${notes.length} notes in ${took < 10 ? took.toFixed(1) : Math.round(took)} ms`);
}

// A newer query cancels the older one; anything else is a failure to show.
const guarded = (work) => () => work().catch((error) => error.name === "AbortError" || say(error.message, true));

try {
  encoder = await Encoder.load(new URL("../", import.meta.url), {
    onProgress: ({ loaded, total }) => {
      progress.value = loaded / total;
      say(`Loading ${(loaded / MIB).toFixed(1)} of ${(total / MIB).toFixed(1)} MiB`);
    },
  });
  progress.hidden = true;
  document.title = `Search notes: ${encoder.name}`;
  area.value = NOTES.join("\n");
  area.addEventListener("change", guarded(index));
  query.addEventListener("input", guarded(search));
  for (const example of document.querySelectorAll("#examples button")) {
    example.addEventListener("click", () => {
      query.value = example.textContent;
      query.dispatchEvent(new Event("input"));
    });
  }
  document.getElementById("examples").hidden = false;
  query.value = decodeURIComponent(location.hash.slice(1));
  query.disabled = false;
  await guarded(index)();
  query.focus();
  document.body.dataset.ready = "yes";
} catch (error) {
  progress.hidden = true;
  say(error.message, true);
}

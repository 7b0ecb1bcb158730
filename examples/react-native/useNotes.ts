import { openDatabaseAsync, type SQLiteDatabase } from "expo-sqlite";
import { useCallback, useEffect, useState } from "react";
import { useTextEmbedder } from "react-native-executorch";
import bundle from "./model/bundle.json";
import { golden } from "./golden";

export interface Note {
  id: number;
  text: string;
}
interface Row extends Note {
  vector: Uint8Array;
  model: string;
}
type Embed = (text: string, prompt: string) => Promise<Float32Array>;

const ADDRESS = process.env.EXPO_PUBLIC_MODEL ?? "http://10.0.2.2:8000"; // this machine, from Android's emulator
const MODEL = { modelPath: `${ADDRESS}/model.pte`, tokenizerPath: `${ADDRESS}/react-native/tokenizer.json` };
const VERSION = bundle.model.source_sha256;
const PROMPTS: Record<string, string> = bundle.prompts, PROMPT = PROMPTS[bundle.default_prompt ?? ""] ?? "";
const HITS = 20;
// As `index.relevant_cosine` of msdc: 1.5 deviations above unrelated sentences.
const SPREAD = bundle.cosines as { mean: number; deviation: number } | null;
const RELEVANT = SPREAD ? SPREAD.mean + 1.5 * SPREAD.deviation : 0;

// Vectors have length 1.
export const cosine = (a: Float32Array, b: Float32Array) => a.reduce((sum, value, at) => sum + value * b[at]!, 0);
const bytesOf = (vector: Float32Array) => new Uint8Array(vector.buffer, vector.byteOffset, vector.byteLength);
const vectorOf = (bytes: Uint8Array) => new Float32Array(bytes.slice().buffer);

/** The package's tokenizer and program give the vectors of the export; wrong ones would only show as bad hits. */
async function selfTest(embed: Embed) {
  for (const { text, vector } of golden()) {
    const agreement = cosine(await embed(text, ""), vector);
    if (agreement < 0.999) throw new Error(`this release reads "${text}" differently (cosine ${agreement.toFixed(3)})`);
  }
}

/** The notes' database; notes of another model are encoded again. */
async function open(embed: Embed, report: (share: number) => void) {
  const db = await openDatabaseAsync("notes.sqlite");
  await db.execAsync(`PRAGMA journal_mode = WAL; CREATE TABLE IF NOT EXISTS notes
    (id INTEGER PRIMARY KEY, text TEXT NOT NULL, vector BLOB NOT NULL, model TEXT NOT NULL)`);
  const former = await db.getAllAsync<Row>("SELECT * FROM notes WHERE model <> ?", VERSION);
  for (const [done, { id, text }] of former.entries()) {
    report(done / former.length);
    const vector = bytesOf(await embed(text, PROMPT));
    await db.runAsync("UPDATE notes SET vector = ?, model = ? WHERE id = ? AND text = ?", vector, VERSION, id, text);
  }
  return db;
}

async function search(db: SQLiteDatabase, embed: Embed, query: string): Promise<Note[]> {
  const rows = await db.getAllAsync<Row>("SELECT * FROM notes ORDER BY id DESC");
  if (!query.trim()) return rows;
  const wanted = query.trim().toLowerCase(), vector = await embed(query.trim(), PROMPT);
  const scored = rows.map((row) => {
    const similarity = cosine(vector, vectorOf(row.vector)), has = row.text.toLowerCase().includes(wanted);
    return { row, score: similarity + (has ? 1 : 0), isRelevant: has || similarity >= RELEVANT };
  });
  const hits = scored.filter(({ isRelevant }) => isRelevant).sort((a, b) => b.score - a.score);
  return hits.slice(0, HITS).map(({ row }) => row);
}

/** Notes by meaning, those with the query's text first; without a query the newest. */
export function useNotes(query: string) {
  const { embed, downloadProgress, error: loadError } = useTextEmbedder(MODEL);
  const [db, setDb] = useState<SQLiteDatabase>();
  const [notes, setNotes] = useState<Note[]>([]);
  const [revision, setRevision] = useState(0);
  const [updated, setUpdated] = useState<number>();
  const [error, setError] = useState<string>();
  const fail = useCallback((reason: Error) => setError(reason.message), []);

  useEffect(() => {
    if (!embed) return;
    let isOutdated = false;
    selfTest(embed).then(() => open(embed, setUpdated)).then(
      (opened) => (isOutdated ? opened.closeAsync() : setDb(opened)),
      (reason) => isOutdated || fail(reason),
    );
    return () => void (isOutdated = true);
  }, [embed, fail]);

  useEffect(() => {
    if (!db || !embed) return;
    let isOutdated = false;
    search(db, embed, query).then(
      (results) => isOutdated || setNotes(results),
      (reason) => isOutdated || fail(reason),
    );
    return () => void (isOutdated = true);
  }, [db, embed, query, revision, fail]);

  const change = useCallback((work: Promise<unknown>) => {
    work.then(() => setRevision((number) => number + 1), fail);
  }, [fail]);
  const save = (text: string, id: number | null = null) => {
    if (!db || !embed) return;
    const row = async () => db.runAsync(
      "INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?)", id, text, bytesOf(await embed(text, PROMPT)), VERSION,
    );
    change(row());
  };
  const remove = (id: number) => db && change(db.runAsync("DELETE FROM notes WHERE id = ?", id));
  const progress = db ? null : updated === undefined
    ? `Loading the model: ${Math.round(downloadProgress)} %` : `Updating the notes: ${Math.round(100 * updated)} %`;
  return { notes, progress, error: error ?? loadError?.message, save, remove };
}

import { useCallback, useEffect, useState } from "react";
import { Encoder } from "model";
import { OtherModel, openIndex, type SearchIndex } from "model/search.js";

declare const MODEL_SHA256: string; // vite.config.ts

export interface Note {
  id: string;
  text: string;
  /** [start, end] of the query's words in `text`. */
  matches: [number, number][];
}

export interface Progress {
  task: string;
  /** 0 to 1. */
  share: number;
}

const NAME = "notes", NEWEST = 100, HITS = 20;

/** The model and the index of the browser's storage; an index of another model is encoded again. */
async function open(report: (progress: Progress) => void, signal: AbortSignal) {
  const encoder = await Encoder.load("model", {
    sha256: MODEL_SHA256,
    signal,
    onProgress: ({ loaded, total }) => report({ task: "Loading the model", share: loaded / total }),
  });
  try {
    return { encoder, index: await openIndex({ name: NAME }, encoder) };
  } catch (error) {
    if (!(error instanceof OtherModel)) throw error;
    const index = await openIndex({ name: NAME }, null);
    const onProgress = ({ done, total }: { done: number; total: number }) =>
      report({ task: "Updating the index", share: done / total });
    await index.rebuild(encoder, { signal, onProgress });
    return { encoder, index };
  }
}

async function newest(index: SearchIndex): Promise<Note[]> {
  const ids = (await index.ids()).slice(-NEWEST).reverse();
  const documents = await Promise.all(ids.map((id) => index.get(id)));
  return documents.flatMap((note) => (note ? [{ id: String(note.id), text: note.text, matches: [] }] : []));
}

/** Notes by words and meaning; without a query the newest. */
export function useSearch(query: string) {
  const [index, setIndex] = useState<SearchIndex>();
  const [notes, setNotes] = useState<Note[]>([]);
  const [revision, setRevision] = useState(0); // of the notes
  const [progress, setProgress] = useState<Progress | null>({ task: "Loading the model", share: 0 });
  const [error, setError] = useState<string>();
  const fail = useCallback((reason: Error) => setError(reason.message), []);

  useEffect(() => {
    const controller = new AbortController(), { signal } = controller;
    const report = (step: Progress) => signal.aborted || setProgress(step);
    const opened = open(report, signal);
    opened.then(
      ({ index }) => {
        if (signal.aborted) return;
        setIndex(index);
        setProgress(null);
        if (index.storage !== "file") setError(`Notes are lost when this page is closed: ${index.storageError}`);
      },
      (reason) => signal.aborted || fail(reason),
    );
    return () => {
      controller.abort();
      opened.then(({ encoder, index }) => index.close().finally(() => encoder.close())).catch(() => {});
    };
  }, [fail]);

  // Other tabs change the same index.
  useEffect(() => {
    const refresh = () => setRevision((number) => number + 1);
    addEventListener("focus", refresh);
    return () => removeEventListener("focus", refresh);
  }, []);

  useEffect(() => {
    if (!index) return;
    let isOutdated = false;
    const search = async () => index.search(query, { top: HITS, threshold: await index.relevantCosine() });
    (query.trim() ? search() : newest(index)).then(
      (results) => isOutdated || setNotes(results),
      (reason) => isOutdated || fail(reason),
    );
    return () => void (isOutdated = true);
  }, [index, query, revision, fail]);

  const change = useCallback(
    async (work: (index: SearchIndex) => Promise<unknown>) => {
      if (!index) return;
      await work(index).catch(fail);
      setRevision((number) => number + 1);
    },
    [index, fail],
  );
  const save = useCallback(
    (text: string, id: string = crypto.randomUUID()) => {
      navigator.storage.persist?.(); // asks the browser not to delete the notes when the disk is full
      return change((index) => index.update([{ id, text }]));
    },
    [change],
  );
  const remove = useCallback((id: string) => change((index) => index.remove(id)), [change]);
  return { notes, progress, error, save, remove };
}

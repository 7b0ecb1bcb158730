import { type FormEvent, useState } from "react";
import { type Note, useSearch } from "./useSearch";

function Editor({ text = "", label, onSave, onCancel }: {
  text?: string; label: string; onSave: (text: string) => void; onCancel?: () => void;
}) {
  const [value, setValue] = useState(text);
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onSave(value.trim());
    setValue("");
  };
  return (
    <form onSubmit={submit}>
      <textarea aria-label={label} placeholder={label} rows={2} value={value}
        onChange={(event) => setValue(event.target.value)} />
      <button disabled={!value.trim()}>Save</button>
      {onCancel && <button type="button" onClick={onCancel}>Cancel</button>}
    </form>
  );
}

function Highlighted({ text, matches }: Note) {
  const parts = matches.map(([start, end], at) => (
    <span key={start}>{text.slice(at ? matches[at - 1]![1] : 0, start)}<mark>{text.slice(start, end)}</mark></span>
  ));
  return <p>{parts}{text.slice(matches.at(-1)?.[1] ?? 0)}</p>;
}

export function App() {
  const [query, setQuery] = useState("");
  const [edited, setEdited] = useState<string>();
  const { notes, progress, error, save, remove } = useSearch(query);
  return (
    <main>
      <h1>Notes</h1>
      {error && <p role="alert">{error}</p>}
      {progress && <label>{progress.task}<progress value={progress.share} /></label>}
      {!progress && (
        <>
          <input type="search" aria-label="Search" placeholder="Search in any language" value={query}
            onChange={(event) => setQuery(event.target.value)} />
          <Editor label="New note" onSave={save} />
          <ul>
            {notes.map((note) => (
              <li key={note.id}>
                {edited === note.id ? (
                  <Editor text={note.text} label="Note" onCancel={() => setEdited(undefined)}
                    onSave={(text) => save(text, note.id).then(() => setEdited(undefined))} />
                ) : (
                  <>
                    <Highlighted {...note} />
                    <button onClick={() => setEdited(note.id)}>Edit</button>
                    <button onClick={() => remove(note.id)}>Delete</button>
                  </>
                )}
              </li>
            ))}
          </ul>
          {!notes.length && <p role="status">{query.trim() ? "Nothing relevant" : "No notes yet"}</p>}
        </>
      )}
    </main>
  );
}

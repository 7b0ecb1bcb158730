"""Search in notes over HTTP, by words and meaning, with any number of worker processes on one index file.

    uvicorn --app-dir examples/server app:app --workers 2

NOTES_INDEX is the file (default: notes.sqlite), NOTES_MODEL the model (default: msdc-mini). Every worker has its own
model; a note that one has written is in the others' next search.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field

import msdc
from msdc.errors import InputError, MsdcError, OtherModel


class Note(BaseModel):
    """A note as it is written."""

    text: Annotated[str, Field(min_length=1, max_length=20_000, pattern=r"\S")]
    title: Annotated[str, Field(max_length=200)] = ""


class StoredNote(Note):
    """A note with its id."""

    id: str


class Hit(StoredNote):
    """A note that a query finds: `passage` is the sentence to show, `matches` the query's words as spans of `text`."""

    passage: str
    matches: list[tuple[int, int]]
    score: float
    cosine: float | None


def open_notes(path: str, encoder: msdc.SentenceEncoder) -> msdc.Index:
    """The index; one of another model is encoded again, by all workers that start, and searched meanwhile."""
    try:
        return msdc.open_index(path, encoder)
    except OtherModel:
        with msdc.open_index(path, None) as former:
            former.rebuild(encoder)
        return msdc.open_index(path, encoder)


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open model and index before the first request, and close the file after the last."""
    # Requests run in threads: one processor for each text, rather than all of them.
    encoder = msdc.load_encoder(os.environ.get("NOTES_MODEL", "msdc-mini"), threads=1)
    with open_notes(os.environ.get("NOTES_INDEX", "notes.sqlite"), encoder) as index:
        app.state.index = index
        yield


app = FastAPI(title="Notes", version=msdc.__version__, lifespan=lifespan)


@app.exception_handler(MsdcError)
def failed(_: Request, error: MsdcError) -> JSONResponse:
    """One line: 422 for a request that cannot be answered, 503 for a full disk or a file that was replaced."""
    return JSONResponse({"detail": str(error)}, 422 if isinstance(error, InputError) else 503)


def stored(note_id: str, note: Note) -> StoredNote:
    """Write a note; it is on disk when this returns."""
    app.state.index.update([{"id": note_id, "text": note.text, "title": note.title}])
    return StoredNote(id=note_id, text=note.text, title=note.title)


@app.get("/search")
def search(
    query: Annotated[str, Query(max_length=1000, pattern=r"\S")],
    top: Annotated[int, Query(ge=1, le=100)] = 10,
    offset: Annotated[int, Query(ge=0, le=1000)] = 0,
) -> list[Hit]:
    """The notes nearest to a query, best first; none where nothing is relevant."""
    index = app.state.index
    hits = index.search(query, top, index.relevant_cosine, offset=offset).hits
    return [Hit.model_validate(hit, from_attributes=True) for hit in hits]


@app.post("/notes", status_code=201)
def add(note: Note) -> StoredNote:
    """Add a note under a new id."""
    return stored(uuid.uuid4().hex, note)


@app.get("/notes/{note_id}")
def read(note_id: str) -> StoredNote:
    """A note by its id."""
    document = app.state.index.get(note_id)
    if document is None:
        raise HTTPException(404, "no such note")
    return StoredNote(id=note_id, text=document.text, title=document.title)


@app.put("/notes/{note_id}")
def edit(note_id: str, note: Note) -> StoredNote:
    """Write a note under an id, in place of one that is there; an unchanged text is not encoded again."""
    return stored(note_id, note)


@app.delete("/notes/{note_id}", status_code=204)
def delete(note_id: str) -> None:
    """Delete a note."""
    if not app.state.index.remove([note_id]):
        raise HTTPException(404, "no such note")


@app.get("/health")
def health() -> dict[str, Any]:
    """Model and number of notes, of a worker that answers."""
    index = app.state.index
    return {"model": index.model.name, "notes": len(index), "process": os.getpid()}

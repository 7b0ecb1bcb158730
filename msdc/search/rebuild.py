"""New vectors for an index whose model was replaced, while its words are searched."""

from __future__ import annotations

import json
from collections.abc import Callable

from msdc.errors import InputError
from msdc.search.blocks import passage_crc, replace_passages
from msdc.search.file import IndexFile, read_document
from msdc.search.passages import PassageEncoder, model_facts
from msdc.search.ranking import run_all, sql


def _state(file: IndexFile, identity: str) -> str:
    if (state := str(file._value("rebuild_state", identity))) == "other":
        raise InputError(f"{file.path or 'index'}: another process rebuilds it with another model")
    return state


def rebuild_passages(
    file: IndexFile, encoder: PassageEncoder, block: int, progress: Callable[[int, int], None] | None
) -> int:
    """Encode all documents, `block` per transaction, into a table of their own, which replaces that of the passages.

    Returns the number of documents that were encoded; `progress` is called with those so far and all. Documents that
    another process adds or encodes meanwhile are taken as they are found.
    """
    identity, count = encoder.model.fingerprint(), 0
    with file._transaction("DEFERRED"):
        if file._empty() or file._value("rebuild_state", identity) == "rebuilt":
            return 0
    facts = model_facts(encoder.model)
    with file._transaction() as db:
        run_all(db, "create_rebuilt")
        db.execute(sql("begin_rebuild"), (identity,))
        db.execute(sql("add_rebuild"), (identity,))
    while True:
        with file._transaction("DEFERRED") as db:
            if _state(file, identity) == "rebuilt":  # by another process
                return count
            documents = {row: read_document(fields) for row, *fields in db.execute(sql("next_rebuilt"), (block,))}
        passages, _ = encoder.passages(list(dict.fromkeys((entry.title, entry.text) for entry in documents.values())))
        with file._transaction() as db:
            if _state(file, identity) == "rebuilt":
                return count
            for (row,) in db.execute(sql("unbuilt"), (json.dumps(list(documents)),)).fetchall():
                parts = passages[documents[row].title, documents[row].text]
                db.executemany(sql("add_rebuilt"), [(row, *part, passage_crc(row, *part)) for part in parts])
                count += 1
            if progress is not None and documents:
                progress(*db.execute(sql("count_rebuilt")).fetchone())
            if not db.execute(sql("next_rebuilt"), (1,)).fetchall():
                replace_passages(db)
                db.execute(sql("add_facts"), facts)
                return count

"""Loading models and indexes by name, above the packages that they need, which are imported when one is opened.

Below, a name means a model's weights (`msdc.compress.loading`) or a bundle (`msdc.export.bundle`), never either.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msdc.arguments import checked
from msdc.compress.loading import model_source
from msdc.encoders.encoder import Encoder, Precision, SentenceEncoder, configured
from msdc.encoders.folder import DEFAULT_MODEL, OWN_TYPE, SHIPPED, is_bundle
from msdc.encoders.joined import JOIN, JoinedEncoder
from msdc.encoders.loading import HeadName, PoolingName
from msdc.errors import InputError
from msdc.extras import named_extras

if TYPE_CHECKING:
    from msdc.search.documents import Missing
    from msdc.search.index import Index, Model


@named_extras("msdc.load_encoder")
@checked
def load_encoder(
    path_or_name: str | Path,
    trust_remote_code: bool = False,
    *,
    pooling: PoolingName | None = None,
    head: HeadName | None = None,
    head_seed: int | None = None,
    precision: Precision | None = None,
    threads: int | None = None,
) -> Encoder:
    """Load a student, a sentence-transformers model, the offline teacher, or a model of the Hugging Face hub.

    A shipped model encodes with its int8 program, which ONNX Runtime runs: the one that `msdc export` writes, kept in
    the user's cache. Every other model computes in float. PyTorch is imported for models of other classes, and where
    `module` is used.

    Args:
        path_or_name: a shipped name (`msdc-mini`), a folder, or a hub id.
        trust_remote_code: let `transformers` run code that comes with the model.
        pooling: for a bare folder (no `modules.json`); None: sentence-transformers' default.
        head: for a bare folder: "mlp" is the dense layer with tanh that SimCSE's models have over [CLS].
        head_seed: if the folder has no weights for the head, draw them with this seed (a student before training).
        precision: "int8" takes the ONNX program of an export, of any model; "float" computes in float; None: "int8"
            for a shipped model, else "float".
        threads: of each call of `encode`, of a model that ONNX Runtime runs; None: up to one per processor, at most
            OMP_NUM_THREADS and what control groups grant. PyTorch's threads are set for a whole process, by
            `torch.set_num_threads`.

    Raises:
        InputError: no such model, or one that is damaged or not supported; `pooling` or `head` for a folder that
            defines them, or together with "int8"; a head without weights; `threads` for a model that PyTorch runs.
    """
    if threads is not None and threads < 1:
        raise InputError(f"`threads` {threads}: must be at least 1")
    source = model_source(path_or_name, pooling, head)
    if (precision or ("int8" if source.folder.parent == SHIPPED else "float")) == "float":
        from msdc.export.loading import load_float_encoder

        return load_float_encoder(
            source, threads, trust_remote_code=trust_remote_code, pooling=pooling, head=head, head_seed=head_seed
        )
    if source.layout.model_type == OWN_TYPE:
        from msdc.export.onnx.encoder import load_program_encoder

        return load_program_encoder(source, "int8", threads)
    if pooling is not None or head is not None or trust_remote_code:
        raise InputError(f'{source.name}: `pooling`, `head` and `trust_remote_code` are for precision="float"')
    from msdc.export.exporters import load_int8_encoder

    return load_int8_encoder(source, threads)


def open_model(
    name: str,
    runtime: str | None = None,
    *,
    prompt_name: str | None = None,
    prompt: str | None = None,
    truncate_dim: int | None = None,
    precision: Precision | None = None,
) -> SentenceEncoder:
    """A bundle if `name` is one (`is_bundle`), else `load_encoder(name)`, with these defaults of `encode`.

    `A+B` is both joined (`JoinedEncoder`), where no folder has that name.
    """
    model: SentenceEncoder
    if JOIN in name and not Path(name).exists():
        model = JoinedEncoder([open_model(part, runtime, precision=precision) for part in name.split(JOIN)])
    elif is_bundle(name):
        if precision is not None:
            raise InputError(f"{name}: a bundle, whose program has a precision of its own; omit `precision`")
        from msdc.export.bundle import load_bundle

        model = load_bundle(name, runtime=runtime)
    elif runtime is not None:
        make = f"msdc export {name} --target linux -o {Path(name).name}-linux"
        raise InputError(f"{name}: not a bundle; `runtime` needs one: {make}")
    else:
        model = load_encoder(name, precision=precision)
    return configured(model, prompt_name, prompt, truncate_dim)


@named_extras("msdc.open_index")
@checked
def open_index(
    source: str | Path | Sequence[str],
    model: str | Model | None = DEFAULT_MODEL,
    *,
    column: str | None = None,
    id_column: str | None = None,
    title_column: str | None = None,
    index: str | Path | None = None,
    force: bool = False,
    missing: Missing = "refuse",
    query_model: Model | None = None,
    check: bool = True,
) -> Index:
    """Search by words and by meaning: in an index file, a text file, a folder of notes, or texts.

        index = msdc.open_index("notes.sqlite")  # created if it does not exist
        index.add([{"id": "n1", "text": "The car is on level 2.", "folder": "travel"}])
        index.search("Wo ist das Auto?", where={"folder": "travel"}).hits[0].id

        msdc.open_index("notes.txt").search("Wo ist das Auto?").hits[0].line

    Vectors of a file's rows are kept in the user's cache: an interrupted call goes on where it stopped.

    Args:
        source: an index (.sqlite, .db), which `add`, `update` and `remove` change; or a text file, one entry per line
            (plain or gzip), or a table with `column`; or a folder, one entry per file; or a list of texts.
        model: a name for `load_encoder`, a bundle's folder, a loaded model, or a function that loads one when needed.
            None: words only, for an index of any model.
        column: column of a csv, tsv, jsonl or parquet file, by name or by number from 1. Other columns are for filters.
        id_column: column with the ids; None: the number of the line or row.
        title_column: column with the titles.
        index: write the entries to a new index in this file, also those of an index of another model or version.
        force: replace an index at `index`.
        missing: a missing number (NaN) is an error, or stored as null.
        query_model: encodes queries, for example with another prompt; None: `model`.
        check: False opens an index at once that has changed since it was checked, such as a large copy; what is read
            later is compared with its checksums in any case.

    Raises:
        OtherModel: an index of another model, which `Index.rebuild` encodes again.
        InputError: no text, a file that cannot be read, no such model.
    """
    from msdc.search.index import index_of

    return index_of(
        source, (lambda: open_model(model)) if isinstance(model, str) else model, column=column, id_column=id_column,
        title_column=title_column, index=index, force=force, missing=missing, query_model=query_model,
        check=check,
    )  # fmt: skip

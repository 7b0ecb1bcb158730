"""The untrained assistant and student of a recipe.

The assistant is the teacher's body with a new multilingual vocabulary, or an existing multilingual encoder; the student
is cut from the assistant, starts from random weights, or is an existing model.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from msdc.compress.cut import fit_student, linear_head, shrink
from msdc.compress.loading import load_torch_encoder
from msdc.compress.student.config import CODE, INDEX, POSITION, TABLE
from msdc.compress.student.io import save_student
from msdc.compress.student.model import Student, StudentConfig
from msdc.compress.student.stock import decode, to_student
from msdc.compress.texts import corpus_frequency
from msdc.compress.vocabulary.train import train_mixed_vocabulary, train_vocabulary
from msdc.distill import vocabulary_transfer as transfer
from msdc.distill.added_language import add_language
from msdc.distill.data import Row
from msdc.distill.data.text import StageText
from msdc.distill.recipe import (
    TEACHER,
    Assistant,
    NamedModel,
    Recipe,
    StudentShape,
    VocabularyTraining,
    is_external,
    model_name,
)
from msdc.distill.teacher import open_external
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import EncodeDefaults, read_defaults
from msdc.encoders.source import ModelSource
from msdc.errors import InputError
from msdc.files import staged_folder
from msdc.progress import say
from msdc.text.tokenizer import PieceTokenizer, Tokenizer

POSITIONS = 128  # of an assistant that is a model by name, unless the student's texts are longer


def named_positions(recipe: Recipe) -> int:
    """The positions that an assistant by name keeps, if it has as many."""
    return max(POSITIONS, 0 if recipe.cut_shape is None else recipe.cut_shape.max_length)


def load_named(model: NamedModel | str | Path, new_head_seed: int | None = None) -> Encoder:
    """The encoder that a recipe names; `pooling` and `head` apply to a bare folder.

    `new_head_seed` is the seed of a random head if the folder has none; None makes that an error.
    """
    if isinstance(model, NamedModel):
        return load_torch_encoder(model.model, pooling=model.pooling, head=model.head, head_seed=new_head_seed)
    return load_torch_encoder(model)


def with_table(teacher: Encoder, tokenizer: PieceTokenizer, settings: Assistant, rows: Sequence[Row]) -> Student:
    """The teacher's body with a new table: random, or means of the teacher's rows weighted by alignment in `rows`.

    With `nonzeros` each row keeps that many of its strongest weights, over at most `base_rows` of the teacher's rows.
    """
    body = decode(to_student(teacher))
    table_WH = body.embedding.table.weight.detach()
    changes = {"vocabulary": tokenizer.size, "pad_id": tokenizer.pad_id, "positions": settings.max_length}
    state = {name: value for name, value in body.state_dict().items() if name != TABLE}
    state[POSITION] = state[POSITION][: settings.max_length]
    ends = teacher.tokenizer.encode([""], 16)[0]
    if len(ends) < 2:
        raise InputError(
            f"{teacher.name}: its tokenizer adds no special ids; a new vocabulary needs a first and a last one"
        )
    row_of_token = {tokenizer.bos_id: table_WH[ends[0]], tokenizer.eos_id: table_WH[ends[-1]]}
    if settings.rows == "random":
        random = torch.Generator().manual_seed(1)
        state[TABLE] = torch.randn(tokenizer.size, table_WH.shape[1], generator=random) * table_WH.std()
    else:
        score, frequency_P = transfer.align_tokens(
            teacher, tokenizer, rows, settings.rows, settings.max_length, settings.inside
        )
    if settings.nonzeros is not None:  # not with random rows
        # Control tokens and the unknown token get the mean row.
        processor = tokenizer.processor
        special = [i for i in range(tokenizer.size) if processor.is_control(i) or processor.is_unknown(i)]
        row_of_token = {index: table_WH.mean(0) for index in special} | row_of_token
        if settings.base_rows is not None:
            # The rows of special tokens and the mean row are in the base too.
            score = transfer.most_used(
                transfer.strongest(score), settings.base_rows - len(row_of_token) - 1, frequency_P
            )
        code = transfer.transplant_code(
            transfer.strongest(score, settings.nonzeros), table_WH, settings.nonzeros, row_of_token
        )
        changes |= {"base_rows": len(code.base_RE), "nonzeros": settings.nonzeros}
        state |= {TABLE: code.base_RE, CODE: code.weight_Vk, INDEX: code.index_Vk}
    else:
        if settings.rows != "random":
            state[TABLE] = transfer.transplant_rows(transfer.strongest(score), table_WH)
        for token, row_H in row_of_token.items():
            state[TABLE][token] = row_H
    assistant = Student(body.config.model_copy(update=changes))
    assistant.load_state_dict(state)
    return assistant.eval()


def make_vocabulary(
    settings: VocabularyTraining, text: StageText, run: Path, words: Sequence[str] = ()
) -> tuple[Path, list[Row]]:
    """The `.model` file of a recipe, trained once per folder `run`, and the rows that it is trained on.

    `words` are added to a vocabulary of whole words.
    """
    say("vocabulary: reading the corpora")
    rows = text.sample_rows(settings.sentences_per_language)
    if settings.file is not None:
        return Path(settings.file).expanduser(), rows
    target, size, lowercase = run / "vocabulary" / "tokenizer.model", settings.train or 32_000, settings.lowercase
    if target.is_file():
        return target, rows
    target.parent.mkdir(parents=True, exist_ok=True)
    say(f"vocabulary: training {size} tokens on {len(rows)} pairs")
    if settings.parts is None:
        texts = sorted({row.source for row in rows}) + [row.target for row in rows if row.target]
        return train_vocabulary(texts, target, size, lowercase=lowercase), rows
    texts_of: dict[str, list[str]] = {"": [row.source for row in rows]}
    for row in rows:
        texts_of.setdefault(row.language, []).append(row.target)
    trained = train_mixed_vocabulary(
        texts_of, target, size, settings.parts, words=words, prefixes=settings.prefixes, lowercase=lowercase,
        spellings=settings.spellings, simplified=settings.simplified,
    )  # fmt: skip
    return trained, rows


def make_assistant(recipe: Recipe, text: StageText, folder: Path) -> None:
    """Write the untrained assistant's model folder."""
    settings = recipe.assistant
    if isinstance(settings, (str, NamedModel)):
        named = recipe.teacher if settings == TEACHER else settings
        say(f"assistant: {model_name(named)}")
        encoder = load_named(named)
        student = to_student(encoder)
        if student.config.positions > named_positions(recipe):
            student = shrink(student, max_length=named_positions(recipe))
        save_student(student, encoder.tokenizer, folder, defaults=trained_defaults(encoder))
        return
    assert settings is not None
    body = load_named(recipe.teacher if settings.body == "teacher" else settings.body)
    words = transfer.own_words(body) if settings.vocabulary.parts is not None else ()
    model_file, rows = make_vocabulary(settings.vocabulary, text, folder.parent, words)
    say(f"assistant: table rows by {settings.rows}")
    student = with_table(body, PieceTokenizer(model_file), settings, rows)
    save_student(student, model_file, folder, defaults=trained_defaults(body))


def make_student(recipe: Recipe, assistant_folder: Path, text: StageText, folder: Path) -> None:
    """Write the untrained student's model folder."""
    shape = recipe.student
    if isinstance(shape, (str, NamedModel)):
        encoder = load_named(shape, new_head_seed=recipe.seed)
        assert encoder.folder is not None
        if isinstance(shape, NamedModel) and shape.vocabulary is not None:
            added = add_language(encoder, shape.vocabulary, text, folder.parent / "vocabulary")
            save_student(added.student, added.file, folder, defaults=trained_defaults(encoder))
        elif to_student(encoder) is encoder.module:
            with staged_folder(folder) as stage:
                shutil.copytree(encoder.folder, stage, dirs_exist_ok=True)
                if ModelSource(stage).identity() != encoder.identity:
                    raise InputError(f"{encoder.folder}: changed while it was copied; run again")
        else:
            save_student(to_student(encoder), encoder.tokenizer, folder, defaults=trained_defaults(encoder))
    elif shape is not None and shape.scratch is not None:
        _from_scratch(recipe, text, folder)
    else:
        student, tokenizer = cut_from_assistant(recipe, assistant_folder, text)
        save_student(student, tokenizer, folder, defaults=read_defaults(assistant_folder))


def trained_defaults(encoder: Encoder) -> EncodeDefaults:
    """The defaults of a model that is trained from `encoder`: its prompts, and the whole vector."""
    return replace(encoder.defaults, truncate_dim=None)


def cut_from_assistant(recipe: Recipe, assistant_folder: Path, text: StageText) -> tuple[Student, Tokenizer]:
    """The student cut from an assistant, its bottleneck from the frequency-weighted SVD, and its tokenizer."""
    shape, encoder = recipe.cut_shape, load_torch_encoder(assistant_folder)
    assert shape is not None
    large = to_student(encoder)
    count = len(large.layers)
    layers = shape.layers if shape.layers is not None else tuple(range(shape.unit or count))
    repeats = shape.repeats or max(1, count // max(1, len(layers)))
    length = min(shape.max_length, large.config.positions)
    texts = [text for row in text.sample_rows(20_000) for text in (row.source, row.target) if text]
    frequency = corpus_frequency(encoder.tokenizer, texts, encoder.tokenizer.size, shape.max_length, smoothing=1.0)
    student = shrink(
        large, layers=layers, repeats=repeats, bottleneck=shape.bottleneck, place=shape.place, frequency_V=frequency,
        max_length=length, dropout=shape.dropout, width=_head_width(recipe), head_bias=shape.head == "ridge",
    )  # fmt: skip
    if shape.base_rows is not None and shape.nonzeros is not None:
        say(f"student: coding its table, {shape.nonzeros} of {shape.base_rows} base rows per token")
        student, variance = fit_student(student, shape.base_rows, shape.nonzeros, frequency)
        say(f"student: the code keeps {variance:.1%} of the table's variance")
    return student, encoder.tokenizer


def _head_width(recipe: Recipe) -> int | None:
    """The width of a student's vectors that `head` of its shape asks for."""
    shape = recipe.student
    if not isinstance(shape, StudentShape) or shape.head is None:
        return None
    if is_external(model_name(recipe.teacher)):
        return open_external(model_name(recipe.teacher), None).width
    return load_named(recipe.teacher).width


def _from_scratch(recipe: Recipe, text: StageText, folder: Path) -> None:
    """A student of random weights with a joint vocabulary of its languages (Mao et al. 2021)."""
    shape, width = recipe.student, _head_width(recipe)
    assert isinstance(shape, StudentShape) and shape.scratch is not None
    plan = shape.scratch
    model_file, _ = make_vocabulary(plan.vocabulary, text, folder.parent)
    tokenizer = PieceTokenizer(model_file)
    config = StudentConfig(
        **plan.model_dump(include={"hidden", "heads", "intermediate", "normalize"}),
        **shape.model_dump(include={"bottleneck", "place", "base_rows", "nonzeros", "dropout"}),
        unit=plan.layers, repeats=shape.repeats or 1, positions=shape.max_length,
        vocabulary=tokenizer.size, pad_id=tokenizer.pad_id,
        **linear_head(width, plan.hidden, shape.head == "ridge"),
    )  # fmt: skip
    torch.manual_seed(text.seed)
    save_student(Student(config), model_file, folder)

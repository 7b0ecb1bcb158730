"""Trim a model's vocabulary: remove tokens and their table rows, and prove that nothing else changed.

Shapes: V old rows, K kept rows.
"""

from __future__ import annotations

import bisect
import re
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
import yaml

from msdc.arguments import checked
from msdc.compress.gate import require_written
from msdc.compress.loading import load_torch_encoder, open_source
from msdc.compress.student.coded_table import prune
from msdc.compress.student.config import CODE, INDEX, TABLE, StudentConfig
from msdc.compress.student.io import ModelReport, save_student
from msdc.compress.student.model import Student, with_state
from msdc.compress.student.stock import to_student
from msdc.compress.texts import quickstart_texts, read_texts
from msdc.compress.vocabulary.comparison import (
    LEAST_COSINE,
    Proof,
    check_least,
    embedded_languages,
    passes,
    prove_prompts,
    require_close,
    require_prompts,
    warn_changed,
)
from msdc.compress.vocabulary.tokens import Vocabulary, open_vocabulary
from msdc.encoders.encoder import Encoder
from msdc.encoders.folder import with_prompt
from msdc.errors import InputError
from msdc.progress import track, warn
from msdc.text.tokenizer import load_tokenizer

SIZE_STEPS = 8  # between a `size` that is refused and the whole vocabulary, to name one that passes

_ALPHABETS = yaml.safe_load(Path(__file__).with_name("alphabets.yaml").read_text(encoding="utf-8"))
_LATIN = _ALPHABETS["scripts"]["latin"]["letters"]
SCRIPTS = {language: script for script in _ALPHABETS["scripts"].values() for language in script["languages"]}
LANGUAGES = sorted({*SCRIPTS, *_ALPHABETS["blocks"]})


class Alphabet:
    """The characters of some languages together (alphabets.yaml), to decide whether a token can belong to them."""

    def __init__(self, languages: Iterable[str]) -> None:
        letters: set[str] = set()
        self.blocks = list(_ALPHABETS["common"])
        self.single_blocks: list[tuple[int, int]] = []
        for language in languages:
            if script := SCRIPTS.get(language):
                letters |= set(script["letters"] + script["languages"][language])
                self.single_blocks.append(script["single"])
            elif language in _ALPHABETS["blocks"]:
                self.blocks += _ALPHABETS["blocks"][language]
            else:
                raise InputError(f"language {language!r} is unknown; known: {', '.join(LANGUAGES)}")
        self.letters = frozenset(letters)
        # Any text may quote Latin letters; they cost only 26 rows.
        self.single = self.letters | set(_LATIN)
        # Characters recur in thousands of tokens.
        self._has = cache(self._look_up)

    def _look_up(self, character: str) -> bool:
        code = ord(character)
        if any(low <= code <= high for low, high in self.blocks):
            # Latin-1 letters such as ª belong to no alphabet and are harmless.
            return not character.isalpha() or code > 0xFF or character.lower() in self.letters
        parts = [part for part in character.lower() if not unicodedata.combining(part)]
        return bool(parts) and all(part in self.letters for part in parts)

    def writes(self, text: str) -> bool:
        """Whether every character of `text` belongs to the languages; a single character is accepted more easily."""
        if len(text) == 1:
            code = ord(text)
            if text.lower() in self.single or any(low <= code <= high for low, high in self.single_blocks):
                return True
        return all(self._has(character) for character in text)


def choose_tokens(
    vocabulary: Vocabulary,
    languages: Sequence[str] = (),
    counts: Mapping[int, int] | None = None,
    size: int | None = None,
    prompt_rows: Collection[int] = (),
) -> list[int]:
    """Indices of the tokens to keep, in their old order: of `languages`, of a corpus (`counts` by row), at most `size`.

    Fixed tokens (special ids, bytes), those of the prompts (`prompt_rows`) and single characters of the languages or of
    the corpus are always kept, so that rare words become characters and not <unk>. With a size the most frequent tokens
    are kept: by corpus count, then by the vocabulary's own order of frequency.
    """
    if not languages and counts is None and size is None:
        raise InputError("state what to keep: `languages`, `corpus` or `size`")
    alphabet = Alphabet(languages) if languages else None
    tokens, used = vocabulary.tokens, counts or {}
    seen_characters = {letter for token in tokens if token.text and used.get(token.row) for letter in token.text}
    must = {index for index, token in enumerate(tokens) if token.fixed or token.row in prompt_rows}
    scored = [index for index, token in enumerate(tokens) if not token.fixed]
    may: list[int] = []
    for index in scored:
        text = tokens[index].text
        if alphabet is not None and text is not None and not alphabet.writes(text):
            continue
        if text is not None and len(text) == 1 and (alphabet is not None or text in seen_characters):
            must.add(index)
        elif size is not None or counts is None or used.get(tokens[index].row):
            may.append(index)
    if scored:
        # A unigram model scores unknown characters by its lowest score; without this token that would change.
        must.add(min(scored, key=lambda index: (tokens[index].score, -index)))
    must |= {part for index in must for part in tokens[index].parts}
    room = len(tokens) if size is None else size - vocabulary.extra
    if room < len(must):
        least = len(must) + vocabulary.extra
        raise InputError(
            f"`size` {size} is too small: {least} special ids, characters and tokens of prompts must be kept"
        )
    for index in sorted(may, key=lambda index: (-used.get(tokens[index].row, 0), -tokens[index].score)):
        new = {index, *tokens[index].parts} - must
        if len(must) + len(new) <= room:
            must |= new
    return sorted(must)


class TrimReport(ModelReport):
    """Sizes before and after, and how texts and vectors changed."""

    vocabulary_before: int
    vocabulary_after: int
    parameters_before: int
    parameters_after: int
    tokenizer: str
    proofs: list[Proof]


def prompt_contexts(prompts: Sequence[str]) -> list[str]:
    """One prompt of each ending, "" included: a text's first word is tokenized by what precedes it."""
    longest_first = sorted(prompts, key=len, reverse=True)
    return list({re.findall(r"\s+$|\S*$", prompt)[0]: prompt for prompt in longest_first}.values())


def with_rows(student: Student, rows: Sequence[int], pad_id: int) -> Student:
    """The student whose table holds `rows` of the old one, in that order, without unused base rows."""
    config = student.config
    if rows and not 0 <= min(rows) <= max(rows) < config.vocabulary:
        raise InputError(f"the tokenizer has row {max(rows)}, the table only {config.vocabulary} rows")
    index_K = torch.tensor(list(rows), dtype=torch.int64)
    state = dict(student.state_dict())
    changes = {"vocabulary": len(rows), "pad_id": pad_id}
    if config.coded:
        state[CODE] = state[CODE][index_K].clone()
        state[INDEX], index_K = prune(state[INDEX][index_K], state[CODE])
        changes["base_rows"] = len(index_K)
    state[TABLE] = state[TABLE][index_K].clone()
    trimmed = with_state(StudentConfig(**(config.model_dump() | changes)), state)
    scales = student.stored_scales
    trimmed.stored_scales = {**scales, **({TABLE: scales[TABLE][index_K.numpy()]} if TABLE in scales else {})}
    return trimmed


def _smaller(
    encoder: Encoder, student: Student, vocabulary: Vocabulary, keep: Sequence[int], folder: Path
) -> tuple[Encoder, Path, list[int]]:
    """The encoder with the tokens `keep`, its tokenizer's file in `folder`, and the old row of each new id."""
    file, rows, pad_id = vocabulary.write(keep, folder)
    small = with_rows(student, rows, pad_id)
    positions = student.config.positions
    after = Encoder(small, load_tokenizer(file.parent, pad_id), positions, "after", None, encoder.defaults)
    return after, file, rows


def _size_that_passes(size: int, full_size: int, passing: Callable[[int], bool]) -> int | None:
    """The smallest of a few sizes between `size` and `full_size` for which `passing` holds; None: none."""
    steps = sorted({size + (full_size - size) * step // SIZE_STEPS for step in range(1, SIZE_STEPS)} - {size})
    index = bisect.bisect_left(steps, True, key=passing)
    return steps[index] if index < len(steps) else None


@checked
def trim(
    model: str | Path = "msdc-mini",
    *,
    output: str | Path,
    languages: Sequence[str] = (),
    corpus: Sequence[str | Path] = (),
    size: int | None = None,
    check: Sequence[str | Path] = (),
    least_cosine: float = LEAST_COSINE,
    force: bool = False,
) -> TrimReport:
    """Remove unused tokens and table rows from a model, and verify that nothing else changed.

    A stock model is written with stock classes (RoBERTa becomes the equal BertModel).

        from msdc.compress import trim

        report = trim("msdc-mini", output="small", languages=["de", "en"])
        print(report.vocabulary_after, report.proofs[0].changed_share)

    Args:
        model: a shipped name, a folder or a hub id.
        output: folder to write.
        languages: keep tokens in the alphabets of these languages, such as "de".
        corpus: keep tokens that these text files use.
        size: keep at most this many tokens, the most frequent ones.
        check: measure the change on these text files too.
        least_cosine: refuse a lower mean cosine of vectors before and after (0: no limit), on `corpus`, `check`, and
            embedded sentences in `languages`, by default in those that the model reads.
        force: replace `output` if it exists.

    Raises:
        InputError: no such model, nothing to keep, an unknown language, or `output` exists.
        GateError: texts that are tokenized as before have other vectors, or `least_cosine` is not reached.
    """
    check_least(least_cosine)
    corpora = [Path(path) for path in corpus]
    output, encoder, student = open_source(model, output, force)
    tokenizer, config = encoder.tokenizer, student.config
    vocabulary = open_vocabulary(tokenizer)
    counts: Counter[int] = Counter()
    prompts = encoder.defaults.prompt_texts()
    contexts = prompt_contexts(prompts)
    for path in corpora:
        texts = read_texts(path)
        for start in track(range(0, len(texts), 4096), f"count {path.name}"):
            for context in contexts:
                for row in tokenizer.encode(with_prompt(context, texts[start : start + 4096]), config.positions):
                    counts.update(row)
    prompt_rows = {row for ids in tokenizer.encode(prompts, config.positions) for row in ids}

    def chosen(size: int | None) -> list[int]:
        return choose_tokens(vocabulary, languages, counts if corpora else None, size, prompt_rows)

    keep = chosen(size)
    codes = embedded_languages(encoder, languages)
    absent = [code for code in languages if code not in codes]
    if absent and not corpora and not check:
        warn(f"the embedded corpus has no text in {', '.join(absent)}: nothing is measured there; name a file of such "
             "text (check)")  # fmt: skip
    files = [(path.name, read_texts(path, limit=20_000)) for path in [*corpora, *map(Path, check)]]
    samples = [(f"embedded corpus ({', '.join(codes)})", quickstart_texts(codes, limit=400))] if codes else []
    # A corpus without languages names all the text that must stay as it is.
    judged = files if corpora and not languages else samples + files
    with tempfile.TemporaryDirectory(prefix="msdc-vocabulary-") as scratch:
        after, file, rows = _smaller(encoder, student, vocabulary, keep, Path(scratch))
        require_prompts(encoder, after, rows)
        # Against the model itself, not against the student that it was converted into.
        by_source = [prove_prompts(encoder, after, rows, texts, name) for name, texts in samples + files]
        proofs = [proof for source_proofs in by_source for proof in source_proofs]
        gated = [proof for source_proofs in by_source[len(by_source) - len(judged) :] for proof in source_proofs]
        if not passes(gated, least_cosine):
            require_close(gated, least_cosine, _advice(
                size, config.vocabulary, lambda tried_size: _reaches(
                    encoder, student, vocabulary, chosen(tried_size), judged, least_cosine)))  # fmt: skip
        warn_changed(proofs)
        if len(rows) == config.vocabulary:
            warn(f"nothing is removed: all {len(rows):,} tokens are among those to keep")
        small = to_student(after)
        rules = {"languages": ", ".join(languages), "tokens of": ", ".join(path.name for path in corpora)}
        rules["at most this many tokens:"] = str(size or "")
        rules_text = "; ".join(f"{rule} {value}" for rule, value in rules.items() if value)
        card = f"# {output.name}\n\n{Path(model).name} with {len(rows)} of its {config.vocabulary} vocabulary rows: "
        card += f"{rules_text}.\n\n"
        for proof in proofs:
            card += (
                f"* {proof.source}: {proof.texts} texts, {proof.changed_share:.2%} tokenized differently; "
                f"vectors of the other texts differ by at most {proof.unchanged_max_abs:.1e}, mean cosine of all "
                f"{proof.mean_cosine:.4f}.\n"
            )
        stock, plan = student is not encoder.module, student.stored_plan
        save_student(
            small, file, output, card=card, force=force, plan=plan, defaults=encoder.defaults, stock=stock,
            check=lambda stage: require_written(
                encoder, after, load_torch_encoder(stage), quickstart_texts(codes, limit=16)
            ),
        )  # fmt: skip
    return TrimReport(
        model=Path(model).name,
        out=str(output),
        vocabulary_before=config.vocabulary,
        vocabulary_after=len(rows),
        parameters_before=sum(p.numel() for p in student.parameters()),
        parameters_after=sum(p.numel() for p in small.parameters()),
        tokenizer=file.name,
        proofs=proofs,
    )


def _reaches(
    encoder: Encoder, student: Student, vocabulary: Vocabulary, keep: Sequence[int],
    judged: Sequence[tuple[str, Sequence[str]]], least_cosine: float,
) -> bool:  # fmt: skip
    """Whether the model with the tokens `keep` reaches `least_cosine` on the texts, at most 400 of each source."""
    with tempfile.TemporaryDirectory(prefix="msdc-vocabulary-") as scratch:
        after, _, rows = _smaller(encoder, student, vocabulary, keep, Path(scratch))
        return all(
            passes(prove_prompts(encoder, after, rows, texts[:400], name), least_cosine) for name, texts in judged
        )


def _advice(size: int | None, full_size: int, passing: Callable[[int], bool]) -> str:
    """What reaches `least_cosine`: a larger `size` if one does."""
    larger = None if size is None else _size_that_passes(size, full_size, passing)
    if larger is not None:
        return f"`size` {larger} reaches it; or lower `least_cosine`"
    return "Keep more tokens (`languages`, `corpus`), or lower `least_cosine`"

"""Words of a domain as tokens of an existing vocabulary, and what they cost."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from msdc.arguments import checked
from msdc.compress.gate import require_written
from msdc.compress.loading import load_torch_encoder, open_source
from msdc.compress.student.io import ModelReport, save_student
from msdc.compress.student.plan import PrecisionPlan, weight_bytes_by_dtype
from msdc.compress.texts import quickstart_texts, read_texts
from msdc.compress.vocabulary.comparison import Proof, prove, prove_prompts, read_languages, warn_changed
from msdc.compress.vocabulary.extend import (
    extend,
    fit_rows,
    inner_ids,
    mean_rows,
    new_tokens,
    require_extendable,
    require_one_token,
    token_rows,
)
from msdc.compress.vocabulary.tokens import Token, open_vocabulary
from msdc.encoders.encoder import Encoder
from msdc.errors import InputError
from msdc.progress import say, warn
from msdc.text.text_files import iterate_lines

CONTEXTS = 3  # sentences per term with which its row is fitted, and as many for the report


class AddReport(ModelReport):
    """What became tokens, and what it changed.

    `terms` are the lines of the files, `repeated` those that are there twice; `several` have more than one word, of
    which each becomes a token; `existing` of the `words` were tokens before. `tokens_before` and `tokens_after` are per
    term. `with_terms` compares texts that hold a term, `proofs` the other texts.
    """

    terms: int
    repeated: int
    several: int
    words: int
    existing: int
    unknown: int
    added: int
    vocabulary_before: int
    vocabulary_after: int
    tokens_before: float
    tokens_after: float
    with_terms: Proof
    proofs: list[Proof]
    bytes_added: int


def read_terms(files: Sequence[str | Path]) -> tuple[list[str], int]:
    """The distinct lines of files, and how many lines repeat an earlier one."""
    lines = [" ".join(line.split()) for path in files for _, line in iterate_lines(path)]
    lines = [line for line in lines if line]
    if not lines:
        raise InputError(f"{', '.join(map(str, files))}: contains no terms (one per line)")
    terms = list(dict.fromkeys(lines))
    return terms, len(lines) - len(terms)


def in_contexts(terms: Sequence[str], sentences: Sequence[str], first: int) -> list[str]:
    """Each term in the middle of CONTEXTS sentences, which differ from term to term; `first` shifts them."""
    texts = []
    for number, term in enumerate(terms):
        for context in range(CONTEXTS):
            words = sentences[(number + (first + context) * 7) % len(sentences)].split()
            words[len(words) // 2 : len(words) // 2 + 1] = [term]
            texts.append(" ".join(words))
    return texts


@checked
def add_words(
    model: str | Path = "msdc-mini",
    *,
    output: str | Path,
    terms: Sequence[str | Path],
    check: Sequence[str | Path] = (),
    force: bool = False,
) -> AddReport:
    """Add words of a domain to a model's vocabulary, with rows fitted so that texts keep their vectors.

        from msdc.compress import add_words

        report = add_words("msdc-mini", output="mine", terms="terms.txt")
        print(report.added, report.tokens_before, report.tokens_after)

    Args:
        model: a shipped name, a folder or a hub id.
        output: folder to write.
        terms: text files, one term per line; each word of a term becomes a token.
        check: measure the change on these text files too.
        force: replace `output` if it exists.

    Raises:
        InputError: no such model, a BPE, no new word, or `output` exists.
        GateError: a word is not read as its token, or unchanged texts have other vectors.
    """
    listed, repeated = read_terms(terms)
    output, encoder, student = open_source(model, output, force)
    vocabulary, config = open_vocabulary(encoder.tokenizer), student.config
    require_extendable(vocabulary)
    split = [vocabulary.words(term) for term in listed]
    words = list(dict.fromkeys(name for names in split for name in names))
    if unreadable := [term for term, names in zip(listed, split, strict=True) if not names]:
        warn(f"{len(unreadable)} terms have no character that the tokenizer reads: {', '.join(unreadable[:8])}")
    tokens = new_tokens(vocabulary, words, config.vocabulary)
    added = len({token.text for token in tokens})
    several = sum(len(names) > 1 for names in split)
    say(f"{len(listed):,} terms" + (f" ({repeated:,} more lines repeat one)" if repeated else "")
        + (f", {several:,} of several words, each of which becomes a token" if several else "")
        + f": {len(words):,} words, {len(words) - added:,} of them are tokens already")  # fmt: skip
    if not tokens:
        raise InputError(f"all {len(words):,} words of the terms are tokens of {encoder.name} already")
    languages = read_languages(encoder)
    sentences = [text for text in quickstart_texts(languages) if len(text.split()) > 3]
    fitting, reported = (in_contexts(listed, sentences, first) for first in (0, CONTEXTS))
    unknown = _warn_unknown(encoder, tokens)
    with tempfile.TemporaryDirectory(prefix="msdc-vocabulary-") as scratch:
        mean_NE = mean_rows(token_rows(student), inner_ids(encoder.tokenizer, [token.text or "" for token in tokens]))
        first = extend(encoder, student, vocabulary, tokens, mean_NE, Path(scratch))
        require_one_token(first.encoder.tokenizer, tokens, first.rows)
        texts = listed + fitting
        after = [[first.rows[i] for i in ids] for ids in first.encoder.tokenize(texts)]
        rows_NE = fit_rows(student, mean_NE, encoder.tokenize(texts), after, encoder.tokenizer.pad_id)
        final = extend(encoder, student, vocabulary, tokens, rows_NE, Path(scratch))
        compared = [(f"embedded corpus ({', '.join(languages)})", quickstart_texts(languages, limit=400))]
        compared += [(path.name, read_texts(path, limit=20_000)) for path in map(Path, check)]
        proofs = [proof for name, texts in compared
                  for proof in prove_prompts(encoder, final.encoder, final.rows, texts, name)]  # fmt: skip
        with_terms = prove(encoder, final.encoder, final.rows, listed + reported, "texts with the terms")
        warn_changed(proofs)
        counts = [
            sum(map(len, inner_ids(model_encoder.tokenizer, listed))) / len(listed)
            for model_encoder in (encoder, final.encoder)
        ]
        plan = student.stored_plan
        stored = plan or PrecisionPlan(precision="fp32", weights={})
        sizes = [
            sum(weight_bytes_by_dtype(sized_student, stored).values()) for sized_student in (student, final.student)
        ]
        sizes[0] += len(encoder.tokenizer.content)
        sizes[1] += len(final.encoder.tokenizer.content)
        report = AddReport(
            model=Path(model).name, out=str(output), terms=len(listed), repeated=repeated, several=several,
            words=len(words), existing=len(words) - added, unknown=unknown, added=len(tokens),
            vocabulary_before=len(vocabulary.tokens), vocabulary_after=len(final.rows), tokens_before=counts[0],
            tokens_after=counts[1], with_terms=with_terms, proofs=proofs, bytes_added=sizes[1] - sizes[0],
        )  # fmt: skip
        card = f"# {output.name}\n\n{report.model} with {len(tokens)} more tokens, of {len(listed)} terms.\n\n"
        card += "".join(f"* {proof.summary()}\n" for proof in (with_terms, *proofs))
        save_student(
            final.student, final.file, output, card=card, force=force, plan=plan, defaults=encoder.defaults,
            stock=student is not encoder.module,
            check=lambda stage: require_written(
                encoder, final.encoder, load_torch_encoder(stage), quickstart_texts(languages, limit=16)
            ),
        )  # fmt: skip
    return report


def _warn_unknown(encoder: Encoder, tokens: Sequence[Token]) -> int:
    """Warn of words with characters that the vocabulary lacks, and return their number."""
    tokenizer = encoder.tokenizer
    unknown_id = getattr(tokenizer, "unk_id", None)
    if unknown_id is None:
        name = (open_vocabulary(tokenizer).raw["model"]).get("unk_token")  # type: ignore[union-attr]
        unknown_id = next((token.row for token in open_vocabulary(tokenizer).tokens if token.name == name), None)
    words = list(dict.fromkeys(token.text or "" for token in tokens))
    unknown_words = [word for word, ids in zip(words, inner_ids(tokenizer, words), strict=True) if unknown_id in ids]
    if unknown_words:
        warn(f"{len(unknown_words):,} words have characters outside the vocabulary, so their rows need training: "
             f"{', '.join(unknown_words[:8])}")  # fmt: skip
    return len(unknown_words)

"""A SentencePiece unigram vocabulary of our own, trained on the corpora, with fixed special ids."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from msdc.errors import InputError
from msdc.files import atomic_path

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3


def train_vocabulary(
    texts: Iterable[str],
    target: Path,
    size: int,
    *,
    character_coverage: float = 0.9998,
    lowercase: bool = True,
    sample: int = 1_000_000,
    threads: int = 2,
) -> Path:
    """Train a unigram model of at most `size` pieces and write its `.model` file.

    `lowercase` folds case (nmt_nfkc_cf), which an uncased teacher asks for: capitals would only split its rows. A
    corpus too small for `size` gets as many pieces as it supports.

    Raises:
        InputError: no text at all, or a vocabulary smaller than the corpus' alphabet.
    """
    import io

    import sentencepiece

    rows = [text for text in texts if text]
    if not rows:
        raise InputError("the corpus holds no text to train a vocabulary on")
    buffer = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(rows),
            model_writer=buffer,
            vocab_size=size,
            hard_vocab_limit=False,
            model_type="unigram",
            character_coverage=character_coverage,
            normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
            pad_id=PAD_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            eos_id=EOS_ID,
            pad_piece="<pad>",
            unk_piece="<unk>",
            bos_piece="<s>",
            eos_piece="</s>",
            input_sentence_size=sample,
            shuffle_input_sentence=True,
            num_threads=threads,
            minloglevel=2,
        )
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise InputError(
            f"SentencePiece cannot train {size} pieces on {len(rows)} sentences: {reason[:200]}"
        ) from error
    with atomic_path(target) as temporary:
        temporary.write_bytes(buffer.getvalue())
    return target

"""A miniature stock XLM-R: sentencepiece.bpe.model, tokenizer.json with fairseq's ids, no modules.json."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import torch


def write_xlmr(folder: Path, sentences: Sequence[str], size: int = 1200, hidden: int = 32) -> Path:
    """Every id is one higher than SentencePiece's, <pad> is 1, <mask> last; the layout of xlm-roberta-base."""
    import sentencepiece
    import transformers
    from sentencepiece import sentencepiece_model_pb2 as pb
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    folder.mkdir(parents=True)
    buffer = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(sentences), model_writer=buffer, vocab_size=size,
                                             model_type="unigram", minloglevel=2, num_threads=1)  # fmt: skip
    (folder / "sentencepiece.bpe.model").write_bytes(buffer.getvalue())
    proto = pb.ModelProto()
    proto.ParseFromString(buffer.getvalue())
    head = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    vocabulary = head + [(p.piece, p.score) for p in proto.pieces[3:]] + [("<mask>", 0.0)]
    backend = Tokenizer(models.Unigram(vocabulary, unk_id=3))
    backend.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    )
    backend.decoder = decoders.Metaspace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    backend.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    backend.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "XLMRobertaTokenizer", "model_max_length": 64, "bos_token": "<s>",
                "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>", "unk_token": "<unk>",
                "pad_token": "<pad>", "mask_token": "<mask>"}  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    torch.manual_seed(3)
    config = transformers.XLMRobertaConfig(
        vocab_size=len(vocabulary), hidden_size=hidden, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=66, pad_token_id=1, bos_token_id=0, eos_token_id=2,
        type_vocab_size=1,
    )  # fmt: skip
    transformers.XLMRobertaModel(config).save_pretrained(folder)
    return folder

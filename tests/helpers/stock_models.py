"""Tiny stock encoders of every family, with random weights and a WordPiece tokenizer."""

import io
import json
from collections.abc import Sequence
from pathlib import Path

import torch

WORDS = [
    *("the", "a", "cat", "dog", "sat", "on", "mat", "ran", "to", "house", "is", "was", "big", "small"),
    *("der", "hund", "lief", "zum", "haus", "##s", "##ed", "##ing", ",", ".", "?"),
]
TEXTS = ["The cat sat on the mat.", "a dog ran", "der Hund lief zum Haus", "cats, dogs?", "house " * 40, "xyzzy"]


def write_wordpiece(folder: Path, size: int = 120, roberta: bool = False) -> None:
    """A `tokenizer.json` with BERT's special ids, or RoBERTa's order (<s> 0, <pad> 1, </s> 2, <unk> 3)."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    names = ["<s>", "<pad>", "</s>", "<unk>"] if roberta else ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    first, last, unk, pad = ("<s>", "</s>", "<unk>", "<pad>") if roberta else ("[CLS]", "[SEP]", "[UNK]", "[PAD]")
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    tokens = list(dict.fromkeys([*names, *WORDS, *letters, *(f"##{c}" for c in letters)]))
    assert len(tokens) <= size
    backend = Tokenizer(models.WordPiece({t: i for i, t in enumerate(tokens)}, unk_token=unk))
    backend.add_special_tokens(names)
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = [(first, tokens.index(first)), (last, tokens.index(last))]
    backend.post_processor = processors.TemplateProcessing(
        single=f"{first} $A {last}", pair=f"{first} $A {last} $B {last}", special_tokens=special
    )
    backend.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "cls_token": first,
        "sep_token": last,
        "unk_token": unk,
        "pad_token": pad,
        "model_input_names": ["input_ids", "attention_mask"],
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def stock_model(family: str, seed: int = 0, **changes):
    """A tiny randomly initialised transformers model of a family, biases and norms random too."""
    import transformers as T

    torch.manual_seed(seed)
    common = {"vocab_size": 120, "pad_token_id": 0}
    shape = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
    short, long = {**shape, "max_position_embeddings": 40}, {**shape, "max_position_embeddings": 42}
    if family in ("roberta", "xlm-roberta", "camembert"):
        common |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "type_vocab_size": 1}
    name, specific = {
        "bert": ("Bert", short),
        "roberta": ("Roberta", long),
        "xlm-roberta": ("XLMRoberta", long | {"layer_norm_eps": 1e-5}),
        "camembert": ("Camembert", long),
        "distilbert": ("DistilBert", {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48,
                                      "max_position_embeddings": 40}),
        "albert": ("Albert", short | {"embedding_size": 16, "inner_group_num": 2}),
    }[family]  # fmt: skip
    model = getattr(T, f"{name}Model")(getattr(T, f"{name}Config")(**common, **(specific | changes))).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def write_stock(
    folder: Path,
    family: str,
    *,
    pooling: str = "mean",
    dense: tuple[int, bool, str] | None = None,
    normalize: bool = True,
    max_seq_length: int | None = 24,
    **changes,
) -> Path:
    """A sentence-transformers folder of a family; `dense` is (width, bias, activation class)."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    model = stock_model(family, **changes)
    model.save_pretrained(folder)
    write_wordpiece(folder, roberta=family in ("roberta", "xlm-roberta", "camembert"))
    if max_seq_length:
        text = json.dumps({"max_seq_length": max_seq_length, "do_lower_case": False})
        (folder / "sentence_bert_config.json").write_text(text)
    modules = [("", "sentence_transformers.models.Transformer"), ("1_Pooling", "sentence_transformers.models.Pooling")]
    hidden = model.config.hidden_size
    (folder / "1_Pooling").mkdir()
    flags = {f"pooling_mode_{key}": mode == pooling for key, mode in
             (("cls_token", "cls"), ("mean_tokens", "mean"), ("max_tokens", "max"))}  # fmt: skip
    (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": hidden, **flags}))
    if dense:
        width, bias, activation = dense
        (folder / "2_Dense").mkdir()
        settings = {"in_features": hidden, "out_features": width, "bias": bias,
                    "activation_function": f"torch.nn.modules.{activation}"}  # fmt: skip
        (folder / "2_Dense/config.json").write_text(json.dumps(settings))
        linear = torch.nn.Linear(hidden, width, bias=bias)
        state = {f"linear.{name}": value.detach() for name, value in linear.state_dict().items()}
        save_file(state, str(folder / "2_Dense/model.safetensors"))
        modules.append(("2_Dense", "sentence_transformers.models.Dense"))
    if normalize:
        (folder / "3_Normalize").mkdir()
        modules.append(("3_Normalize", "sentence_transformers.models.Normalize"))
    rows = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules)]
    (folder / "modules.json").write_text(json.dumps(rows))
    return folder


def write_xlmr(folder: Path, sentences: Sequence[str], size: int = 1200, hidden: int = 32) -> Path:
    """A miniature XLM-R: sentencepiece.bpe.model, tokenizer.json with fairseq's ids, no modules.json.

    Every id is one higher than SentencePiece's, <pad> is 1, <mask> last; the layout of xlm-roberta-base.
    """
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

"""Encoders of many architectures with random weights, as sentence-transformers saves them: folders for the tests and
benchmarks of the generic way. Shapes: `size` multiplies a tiny default."""

from pathlib import Path

import torch

VOCABULARY = 120
EOS = 2


def configurations(hidden: int, layers: int):
    """Makers of models with random weights, by architecture."""
    import transformers as T

    common = {"vocab_size": VOCABULARY, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": 4,
         "intermediate_size": 2 * hidden, "pad_token_id": 0}  # fmt: skip
    head = {"head_dim": hidden // 4}
    return {
        "bert": lambda: T.BertModel(T.BertConfig(**common)),
        "mpnet": lambda: T.MPNetModel(T.MPNetConfig(**common)),
        "modernbert": lambda: T.ModernBertModel(
            T.ModernBertConfig(**{**common, "num_hidden_layers": layers + 2}, local_attention=16, bos_token_id=2,
                               eos_token_id=3, cls_token_id=2, sep_token_id=3)),
        "nomic-bert": lambda: T.NomicBertModel(T.NomicBertConfig(**common)),
        "deberta-v3": lambda: T.DebertaV2Model(
            T.DebertaV2Config(**common, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=24,
                              share_att_key=True, norm_rel_ebd="layer_norm", position_biased_input=False,
                              type_vocab_size=0)),
        "embedding-gemma": lambda: T.Gemma3TextModel(
            T.Gemma3TextConfig(**{**common, "num_hidden_layers": layers + 2}, num_key_value_heads=1, **head,
                               use_bidirectional_attention=True, sliding_window=16,
                               layer_types=["sliding_attention"] * (layers + 1) + ["full_attention"])),
        "qwen3": lambda: T.Qwen3Model(T.Qwen3Config(**common, num_key_value_heads=2, **head)),
        "t5": lambda: T.T5EncoderModel(
            T.T5Config(vocab_size=VOCABULARY, d_model=hidden, d_kv=hidden // 4, d_ff=2 * hidden, num_layers=layers,
                       num_heads=4, feed_forward_proj="gated-gelu")),
        "clip-text": lambda: T.CLIPModel(
            T.CLIPConfig(
                text_config={**common, "max_position_embeddings": 77, "eos_token_id": 3, "bos_token_id": 2},
                vision_config={"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
                               "num_attention_heads": 2, "image_size": 8, "patch_size": 4},
                projection_dim=hidden // 2)),
    }  # fmt: skip


ARCHITECTURES = ("bert", "mpnet", "modernbert", "nomic-bert", "deberta-v3", "embedding-gemma", "qwen3", "t5",
                 "clip-text", "static")  # fmt: skip


# Other text encoders of transformers that a small model can be made of: (class, settings beyond `_common`).
_ROBERTA = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
_KEYS = {"num_key_value_heads": 2, "head_dim": 16}
_BART = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
         "decoder_attention_heads": 4, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128}  # fmt: skip
_T5 = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
_XLM = {"emb_dim": 64, "n_layers": 2, "n_heads": 4, "pad_index": 0}
MORE = {
    "albert": ("Albert", {"embedding_size": 32}),
    "bart": ("Bart", _BART),
    "bert-generation": ("BertGenerationEncoder", {}),
    "big-bird": ("BigBird", {"block_size": 8, "num_random_blocks": 1}),
    "bloom": ("Bloom", {"n_layer": 2, "n_head": 4}),
    "camembert": ("Camembert", _ROBERTA),
    "convbert": ("ConvBert", {"embedding_size": 64}),
    "data2vec-text": ("Data2VecText", _ROBERTA),
    "deberta": ("Deberta", {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0}),
    "distilbert": ("DistilBert", {"dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128}),
    "electra": ("Electra", {"embedding_size": 32}),
    "ernie": ("Ernie", {}),
    "esm": ("Esm", {"mask_token_id": 4, "position_embedding_type": "rotary", "token_dropout": False}),
    "falcon": ("Falcon", {}),
    "flaubert": ("Flaubert", _XLM),
    "fnet": ("FNet", {}),
    "funnel": ("Funnel", {"block_sizes": [2], "num_decoder_layers": 1, "d_model": 64, "n_head": 4, "d_head": 16,
                          "d_inner": 128}),
    "gemma": ("Gemma", _KEYS),
    "gemma2": ("Gemma2", {**_KEYS, "sliding_window": 16}),
    "gpt-neo": ("GPTNeo", {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]],
                           "window_size": 16, "bos_token_id": 2, "eos_token_id": 3}),
    "gpt-neox": ("GPTNeoX", {}),
    "gpt2": ("GPT2", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "bos_token_id": 2,
                      "eos_token_id": 3}),
    "granite": ("Granite", _KEYS),
    "ibert": ("IBert", _ROBERTA),
    "layoutlm": ("LayoutLM", {}),
    "lilt": ("Lilt", {**_ROBERTA, "hidden_size": 96}),
    "llama": ("Llama", _KEYS),
    "longformer": ("Longformer", {**_ROBERTA, "attention_window": 16}),
    "luke": ("Luke", {**_ROBERTA, "entity_vocab_size": 4, "entity_emb_size": 16}),
    "megatron-bert": ("MegatronBert", {}),
    "mistral": ("Mistral", {**_KEYS, "sliding_window": 16}),
    "mobilebert": ("MobileBert", {"embedding_size": 32, "intra_bottleneck_size": 32}),
    "mt5": ("MT5Encoder", _T5),
    "nystromformer": ("Nystromformer", {"num_landmarks": 8, "segment_means_seq_len": 64}),
    "olmo": ("Olmo", {"num_key_value_heads": 2}),
    "opt": ("OPT", {"ffn_dim": 128, "word_embed_proj_dim": 64}),
    "phi": ("Phi", {"num_key_value_heads": 4}),
    "qwen2": ("Qwen2", {"num_key_value_heads": 2}),
    "rembert": ("RemBert", {"input_embedding_size": 32, "output_embedding_size": 32}),
    "roberta": ("Roberta", _ROBERTA),
    "roberta-prelayernorm": ("RobertaPreLayerNorm", _ROBERTA),
    "roformer": ("RoFormer", {"embedding_size": 32}),
    "splinter": ("Splinter", {}),
    "squeezebert": ("SqueezeBert", {"embedding_size": 64}),
    "umt5": ("UMT5Encoder", _T5),
    "xlm": ("XLM", _XLM),
    "xlm-roberta": ("XLMRoberta", _ROBERTA),
    "xlm-roberta-xl": ("XLMRobertaXL", _ROBERTA),
    "xlnet": ("XLNet", {"d_model": 64, "n_layer": 2, "n_head": 4, "d_inner": 128}),
    "xmod": ("Xmod", {**_ROBERTA, "languages": ["en_XX"], "default_language": "en_XX"}),
    "yoso": ("Yoso", {"use_expectation": True}),
}  # fmt: skip
EVERY = tuple(sorted({*ARCHITECTURES, *MORE}))


def _another(name: str):
    """A model of `MORE`, by the names of its classes in transformers."""
    import transformers as T

    stem, specific = MORE[name]
    common = {"vocab_size": VOCABULARY, "pad_token_id": 0, "max_position_embeddings": 130}
    # Settings of a model whose names are its own are given whole in the table.
    if not specific.keys() & {"d_model", "n_embd", "emb_dim", "dim", "n_layer", "num_layers"}:
        common |= {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    if name in ("bloom", "gpt-neo"):
        common["hidden_size"] = 64
    if name == "xlnet":
        del common["max_position_embeddings"]
    kind = {"BertGenerationEncoder": "BertGeneration", "MT5Encoder": "MT5", "UMT5Encoder": "UMT5"}.get(stem, stem)
    model_class = stem if stem == "BertGenerationEncoder" else f"{stem}Model"
    return getattr(T, model_class)(getattr(T, f"{kind}Config")(**common | specific))


def architecture_modules(name: str, hidden: int = 64, layers: int = 2, seed: int = 0) -> list[torch.nn.Module]:
    """The modules of a sentence-transformers model of this architecture, as it is usually published."""
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling

    torch.manual_seed(seed)
    if name == "static":
        bag = type("StaticEmbedding", (torch.nn.Module,), {"forward": _look_up})()
        bag.embedding = torch.nn.EmbeddingBag(VOCABULARY, hidden)
        return [bag, Normalize()]
    body = (_another(name) if name in MORE else configurations(hidden, layers)[name]()).eval()
    with torch.no_grad():
        for parameter in body.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    if name == "clip-text":
        return [_Body(body)]
    pooling = {"qwen3": "lasttoken", "modernbert": "cls"}.get(name, "mean")
    modules: list[torch.nn.Module] = [_Body(body), Pooling(hidden, pooling)]
    if name == "embedding-gemma":
        identity = torch.nn.Identity()
        modules += [Dense(hidden, 2 * hidden, bias=False, activation_function=identity),
                    Dense(2 * hidden, hidden, bias=False, activation_function=identity)]  # fmt: skip
    return [*modules, Normalize()]


def _look_up(self, features):
    features["sentence_embedding"] = self.embedding(features["input_ids"], features["offsets"])
    return features


class _Body(torch.nn.Module):
    """What sentence-transformers' Transformer computes, around a model that was never saved."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, features):
        inputs = {key: features[key] for key in ("input_ids", "attention_mask") if key in features}
        if hasattr(self.model, "get_text_features"):
            output = self.model.get_text_features(**inputs)
            features["sentence_embedding"] = output if torch.is_tensor(output) else output.pooler_output
        else:
            features["token_embeddings"] = self.model(**inputs).last_hidden_state
        return features


def rows() -> list[list[int]]:
    """Rows of ids of several lengths that end as texts do."""
    return [[2, *((7 * i + 11 * j) % (VOCABULARY - 5) + 4 for j in range(n)), 3] for i, n in enumerate((0, 3, 15, 38))]


def save_bert_like(folder: Path, name: str) -> Path:
    """A folder saved by sentence-transformers itself, with a WordPiece tokenizer."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
    from stock_models import write_wordpiece

    torch.manual_seed(0)
    body = folder.with_name(f"{folder.name}-body")
    body.mkdir(parents=True)
    model = _another(name) if name in MORE else configurations(64, 2)[name]()
    model.save_pretrained(body)
    write_wordpiece(body)
    SentenceTransformer(
        modules=[Transformer(str(body), max_seq_length=40), Pooling(64, "mean"), Normalize()], device="cpu"
    ).save(str(folder))
    return folder

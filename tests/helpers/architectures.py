"""Encoders of many architectures with random weights, as sentence-transformers saves them: folders for the tests and
benchmarks of the generic way. Shapes: `size` multiplies a tiny default."""

from pathlib import Path

import torch

VOCABULARY = 120
EOS = 2


def configurations(hidden: int, layers: int):
    """Makers of models with random weights, by architecture."""
    import transformers as T

    c = {"vocab_size": VOCABULARY, "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": 4,
         "intermediate_size": 2 * hidden, "pad_token_id": 0}  # fmt: skip
    head = {"head_dim": hidden // 4}
    return {
        "bert": lambda: T.BertModel(T.BertConfig(**c)),
        "mpnet": lambda: T.MPNetModel(T.MPNetConfig(**c)),
        "modernbert": lambda: T.ModernBertModel(
            T.ModernBertConfig(**{**c, "num_hidden_layers": layers + 2}, local_attention=16, bos_token_id=2,
                               eos_token_id=3, cls_token_id=2, sep_token_id=3)),
        "nomic-bert": lambda: T.NomicBertModel(T.NomicBertConfig(**c)),
        "deberta-v3": lambda: T.DebertaV2Model(
            T.DebertaV2Config(**c, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=24,
                              share_att_key=True, norm_rel_ebd="layer_norm", position_biased_input=False,
                              type_vocab_size=0)),
        "embedding-gemma": lambda: T.Gemma3TextModel(
            T.Gemma3TextConfig(**{**c, "num_hidden_layers": layers + 2}, num_key_value_heads=1, **head,
                               use_bidirectional_attention=True, sliding_window=16,
                               layer_types=["sliding_attention"] * (layers + 1) + ["full_attention"])),
        "qwen3": lambda: T.Qwen3Model(T.Qwen3Config(**c, num_key_value_heads=2, **head)),
        "t5": lambda: T.T5EncoderModel(
            T.T5Config(vocab_size=VOCABULARY, d_model=hidden, d_kv=hidden // 4, d_ff=2 * hidden, num_layers=layers,
                       num_heads=4, feed_forward_proj="gated-gelu")),
        "clip-text": lambda: T.CLIPModel(
            T.CLIPConfig(
                text_config={**c, "max_position_embeddings": 77, "eos_token_id": 3, "bos_token_id": 2},
                vision_config={"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
                               "num_attention_heads": 2, "image_size": 8, "patch_size": 4},
                projection_dim=hidden // 2)),
    }  # fmt: skip


ARCHITECTURES = ("bert", "mpnet", "modernbert", "nomic-bert", "deberta-v3", "embedding-gemma", "qwen3", "t5",
                 "clip-text", "static")  # fmt: skip


def architecture_modules(name: str, hidden: int = 64, layers: int = 2, seed: int = 0) -> list[torch.nn.Module]:
    """The modules of a sentence-transformers model of this architecture, as it is usually published."""
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling

    torch.manual_seed(seed)
    if name == "static":
        bag = type("StaticEmbedding", (torch.nn.Module,), {"forward": _look_up})()
        bag.embedding = torch.nn.EmbeddingBag(VOCABULARY, hidden)
        return [bag, Normalize()]
    body = configurations(hidden, layers)[name]().eval()
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
            found = self.model.get_text_features(**inputs)
            features["sentence_embedding"] = found if torch.is_tensor(found) else found.pooler_output
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
    configurations(64, 2)[name]().save_pretrained(body)
    write_wordpiece(body)
    SentenceTransformer(
        modules=[Transformer(str(body), max_seq_length=40), Pooling(64, "mean"), Normalize()], device="cpu"
    ).save(str(folder))
    return folder

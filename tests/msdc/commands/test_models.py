"""`msdc models` says of each shipped model what its card and its files say."""

import json

import pytest
from click.testing import CliRunner

import msdc
from msdc.cli import msdc as cli
from msdc.commands.models import read_card, shipped_models
from msdc.encoders.folder import SHIPPED, shipped_names
from msdc.errors import InputError

FOURTEEN = ("en", "de", "es", "fr", "it", "nl", "tr", "ar", "pt", "ru", "pl", "zh", "ja", "ko")


def test_every_shipped_model_is_listed_by_size():
    models = shipped_models()
    assert sorted(model.name for model in models) == shipped_names()
    assert [model.bytes for model in models] == sorted(model.bytes for model in models)
    assert [model.name for model in models if model.default] == ["msdc-mini"]
    for model in models:
        sizes = {path.name: path.stat().st_size for path in (SHIPPED / model.name).iterdir()}
        assert model.bytes == sizes["model.safetensors"] + sizes.get("tokenizer.model", sizes["tokenizer.json"])
        assert model.languages == FOURTEEN
        assert model.about
        assert model.license
        encoder = msdc.load_encoder(model.name)
        assert (model.width, model.max_length) == (encoder.width, encoder.max_length)


def test_the_command_prints_a_table_or_json():
    rows = json.loads(CliRunner().invoke(cli, ["models", "--json"]).output)
    table = CliRunner().invoke(cli, ["models", "--wide"]).output
    for row in rows:
        assert row["name"] in table
        assert row["about"] in table


@pytest.mark.parametrize("text", ["# A card\n", "---\n- a list\n---\n", "---\nlicense: mit\n"])
def test_a_card_without_metadata_is_an_error(tmp_path, text):
    (tmp_path / "README.md").write_text(text)
    with pytest.raises(InputError, match="no metadata at its head"):
        read_card(tmp_path)


@pytest.mark.parametrize("name", shipped_names())
def test_a_text_is_near_its_translations_in_all_languages(name):
    """Each model reads all of its languages: a greeting is nearer to its translations than to another sentence."""
    same = ["Good morning, how are you?", "Guten Morgen, wie geht es dir?", "Buenos días, ¿cómo estás?",
            "Bonjour, comment vas-tu ?", "Buongiorno, come stai?", "Goedemorgen, hoe gaat het met je?",
            "Günaydın, nasılsın?", "صباح الخير، كيف حالك؟", "Bom dia, como você está?", "Доброе утро, как дела?",
            "Dzień dobry, jak się masz?", "早上好，你好吗？", "おはようございます、お元気ですか？",
            "좋은 아침입니다, 어떻게 지내세요?"]  # fmt: skip
    vectors = msdc.load_encoder(name).encode([*same, "The company sold its last factory in May."])
    cosines = vectors[:-1] @ vectors[0]
    assert cosines.min() > float(vectors[-1] @ vectors[0]) + 0.2

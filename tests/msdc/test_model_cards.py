"""What a shipped model's card says of its use is what its folder does: prompts, longest input, pooling, sizes."""

import json
import re
from collections.abc import Callable

import pytest

import msdc
from msdc.commands.models import shipped_models
from msdc.encoders.folder import locate_model

NAMES = [model.name for model in shipped_models()]
WORDS = {"three": 3, "six": 6}


def card(name: str) -> str:
    """The card's description, one line."""
    text = (locate_model(name) / "README.md").read_text(encoding="utf-8").split(f"# {name}\n", 1)[1]
    return " ".join(text.split("\n## ")[0].split())


def statements(name: str) -> dict[str, tuple[object, object]]:
    """What the card states, and the value in the folder, by subject."""
    encoder, text = msdc.load_encoder(name), card(name)
    config = json.loads((locate_model(name) / "config.json").read_text(encoding="utf-8"))
    prompts = {**encoder.defaults.prompts}
    stated: dict[str, tuple[object, object]] = {
        "prompts": (re.findall(r'prompts? (".+?")', text), [json.dumps(prompt) for prompt in prompts.values()]),
        "says that it has none": ("No prompts" in text, not prompts),
        "default prompt": ("", encoder.defaults.prompt()),
    }

    def compare(subject: str, pattern: str, value: object, read: Callable[[str], object]) -> None:
        match = re.search(pattern, text)
        assert match, f"{name}: the card does not state its {subject}"
        stated[subject] = (read(match[1]), value)

    number: Callable[[str], object] = lambda word: WORDS.get(word) or int(word.replace(",", ""))  # noqa: E731
    compare("longest input", r"Longest input (\d+) tokens", encoder.max_length, int)
    compare("vocabulary", r"([\d,]{7}) (?:SentencePiece tokens|of its tokens)", config["vocabulary"], number)
    if config["unit"]:
        compare("layers", r"\b(three|six) (?:transformer layers|of the twelve layers)", config["unit"], number)
        compare("pooling", r"\b(mean|cls|last) pooling", config["pooling"], str)
    stated["normalised"] = ("normalised" in text, config["normalize"] and config["unit"] > 0)
    return stated


@pytest.mark.parametrize("name", NAMES)
def test_a_card_states_what_its_folder_does(name):
    for subject, (stated, actual) in statements(name).items():
        assert stated == actual, f"{name}: {subject}"

"""How many texts the web module says it cuts: those whose ids, as Python counts them, are more than the model reads."""

from pathlib import Path

import pytest
from folder_kinds import UNPOOLED, kind_bundle
from programs import ask_node
from small_tokenizers import fuzz_texts

from msdc.export.bundle import load_bundle
from msdc.export.golden import golden_texts
from msdc.export.mobile.web import npm
from msdc.export.mobile.web.write import module_source

HERE = Path(__file__).parent
WHOLE = 1 << 20


@pytest.mark.parametrize("kind", ["sentencepiece", "static", UNPOOLED])
def test_truncated_texts_are_counted_as_in_python(web_bundle, tmp_path, kind):
    folder = web_bundle if kind == "sentencepiece" else kind_bundle(kind, "onnx")[1]
    (tmp_path / "msdc.mjs").write_text(module_source(), encoding="utf-8")
    bundle = load_bundle(folder, "onnx")
    # Texts of every length around the limit, with and without a prompt.
    words = "the dog ran to the house " * bundle.max_length
    texts = [words[:size] for size in range(6 * bundle.max_length)] + golden_texts()[::4] + fuzz_texts(60, 5)
    prompts = [bundle.defaults.prompt(), "", "a note: "]
    options = [{}, *({"prompt": prompt} for prompt in prompts[1:])]
    name = next(iter(bundle.defaults.prompts), None)
    if name is not None:
        prompts.append(bundle.defaults.prompts[name])
        options.append({"promptName": name})

    def lengths(prompt: str) -> list[int]:
        return [len(ids) for ids in bundle.tokenizer.encode([prompt + text for text in texts], WHOLE)]

    runtime = {name: str(npm.runtime_folder() / file) for name, file in (("runtime", npm.SCRIPT), ("wasm", npm.WASM))}
    request = {"module": str(tmp_path / "msdc.mjs"), "bundle": str(folder), "texts": texts, "options": options}
    counted = ask_node(HERE / "count.mjs", tmp_path, request | runtime)
    expected = [sum(length > bundle.max_length for length in lengths(prompt)) for prompt in prompts]
    assert counted["counts"] == expected
    assert 0 < expected[1] < expected[2] < len(texts)
    assert counted["each"] == [int(length > bundle.max_length) for length in lengths(prompts[0])]
    assert counted["refused"] == "TypeError: text 2 is not a string"
    assert counted["mistyped"] == "TypeError: option maxLength is unknown; known: prompt, promptName"
    assert counted["none"] == 0

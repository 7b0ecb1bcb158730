"""The table of hostile texts, damaged bundles and damaged indexes in Python; the JVM and Chromium run the same."""

import numpy as np
import pytest
import tiny_models as tiny
from hostile_inputs import DAMAGE, DOCUMENTS, HALVES, NUL, TEXTS, damaged_bundles, damaged_indexes
from refusals import one_line

import msdc
from msdc.errors import InputError
from msdc.export.bundle import load_bundle
from msdc.export.manifest import read_manifest


@pytest.fixture(scope="module")
def bundle():
    return load_bundle(tiny.bundle(), "onnx")


def test_texts(bundle):
    vectors_ND = bundle.encode(list(TEXTS.values()))
    assert np.isfinite(vectors_ND).all()
    ids = bundle.tokenize(list(TEXTS.values()))
    assert all(0 < len(row) <= tiny.MAX_LENGTH for row in ids)
    # A batch gives what single texts give, in any order.
    for name in ("every plane", "long marks", "NULs inside"):
        np.testing.assert_allclose(bundle.encode(TEXTS[name]), vectors_ND[list(TEXTS).index(name)], atol=1e-5)
    assert bundle.tokenize(list(TEXTS.values())[::-1]) == ids[::-1]


@pytest.mark.parametrize("text", HALVES.values(), ids=HALVES)
def test_halves_of_surrogate_pairs(bundle, text, tmp_path):
    assert "half of a surrogate pair" in one_line(lambda: bundle.encode(["fine", text]))
    assert "half of a surrogate pair" in one_line(lambda: bundle.encode("fine", prompt=text))
    with msdc.open_index(tmp_path / "index.sqlite", bundle) as index:
        for field in ("id", "text", "title", "note"):
            assert "half of a surrogate pair" in one_line(
                lambda field=field: index.add([{"id": "1", "text": "fine", field: text}])
            )
        index.add([{"id": "1", "text": "fine", "note": "x"}])
        for mode in ("words", "vectors", "both"):
            assert "half of a surrogate pair" in one_line(lambda mode=mode: index.search(text, mode=mode))
        assert "half of a surrogate pair" in one_line(lambda: index.search("fine", where={"note": text}))
        assert "half of a surrogate pair" in one_line(lambda: index.search("fine", where={text: "x"}))
        assert "half of a surrogate pair" in one_line(lambda: index.remove([text]))


@pytest.mark.parametrize("runtime", ["executorch", "onnx"])
def test_damaged_bundles(tmp_path, runtime):
    bundle = tiny.bundle()
    manifest = read_manifest(bundle)
    files = [manifest.tokenizer.file, "golden.json", *manifest.program_files(runtime)]
    damaged = damaged_bundles(bundle, tmp_path, files)
    assert len(damaged) == len(DAMAGE) * (len(files) + 1)
    for folder, name in damaged.items():
        assert name in one_line(lambda folder=folder: load_bundle(tmp_path / folder, runtime)), folder


def test_documents_and_damaged_indexes(bundle, tmp_path, capsys):
    path = tmp_path / "whole.sqlite"
    with msdc.open_index(path, bundle) as index:
        index.add(DOCUMENTS)
        assert len(index) == len(DOCUMENTS)
        expected = {mode: index.search("the ticket", 9, mode=mode).hits for mode in ("words", "both")}
        for query in TEXTS.values():
            if query.strip():
                assert index.search(query, 3).hits is not None
        (nul,) = index.search("ticket", 1, where={"note": TEXTS["NULs inside"].replace("\0", "")}).hits
        assert nul.id == "NULs inside"
        assert nul.text == TEXTS["NULs inside"]
        index.add([{"id": "tick", "text": "is not removed", "note": "tick"}])
        for work in (
            lambda: index.add([{"id": NUL, "text": "fine"}]), lambda: index.remove([NUL]),
            lambda: index.add([{"id": "1", "text": "fine", "note": [NUL]}]),
            lambda: index.search("fine", where={"note": NUL}), lambda: index.search("fine", where={NUL: "x"}),
        ):  # fmt: skip
            assert "NUL" in one_line(work)
        assert index.remove(["tick"]) == 1
        capsys.readouterr()
        index.search("\U00012000" * 100_000)
        assert len(capsys.readouterr().err) < 300
    refused = 0
    for name in damaged_indexes(path, tmp_path / "damaged"):
        try:
            with msdc.open_index(tmp_path / "damaged" / name, bundle) as index:
                hits = {mode: index.search("the ticket", 9, mode=mode).hits for mode in expected}
                assert hits == expected, name
        except InputError as error:
            refused += 1
            assert "\n" not in str(error)
            assert len(str(error)) < 500
    assert refused > 30

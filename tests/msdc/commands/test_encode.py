"""`msdc encode`, and the prompt options of every command that encodes: the vectors of the model itself, row for row."""

import gzip
import itertools
import json
import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from folder_kinds import kind_bundle

import msdc
from msdc.bench.measure import collect
from msdc.bench.options import BenchSettings
from msdc.cli import msdc as cli
from msdc.commands.vectors import Texts, describe, encode_stream, encode_to_file, of_texts
from msdc.encoders.encoder import configured
from msdc.scores import cosine_rows

LINES = ["Where is the station?", "", "Wo ist der Bahnhof?", "  spaces  ", "¿Dónde está la estación?"]


@pytest.fixture(scope="module")
def model():
    return msdc.load_encoder("msdc-mini")


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def run(*words, code=0, text=None):
    done = CliRunner().invoke(cli, [str(word) for word in words], input=text)
    exit_code = getattr(done.exception, "exit_code", done.exit_code) if code else done.exit_code
    assert exit_code == code, done.output + repr(done.exception)
    return done


def close(found_ND: np.ndarray, expected_ND: np.ndarray) -> bool:
    """Whether vectors are those of one model."""
    return found_ND.shape == expected_ND.shape and bool(np.abs(found_ND - expected_ND).max() < 1e-6)


def shown(*words) -> str:
    """The line of a wrong input."""
    return str(run(*words, code=2).exception)


def test_precision(model, tiny_bundle, tmp_path):
    """A shipped model is int8 by default; a bundle has its own precision."""
    exact, path = msdc.load_encoder("msdc-mini", precision="float"), tmp_path / "v.npy"
    texts = ["Where is the station?", "¿Dónde está la estación?"]
    for words, expected in (([], model), (["--precision", "int8"], model), (["--precision", "float"], exact)):
        run("encode", *words, "msdc-mini", "-i", "-", "-o", path, "--force", text="\n".join(texts))
        vectors_ND = expected.encode(texts)
        assert np.array_equal(np.load(path), vectors_ND), words
        cosines = json.loads(run("compare", *words, "msdc-mini", *texts, "--json").stdout)["cosine"]
        assert cosines == pytest.approx(cosine_rows(vectors_ND[:1], vectors_ND[1:]).tolist(), abs=1e-5)
    output = shown("encode", tiny_bundle, "x", "--precision", "int8")
    assert "a bundle, whose program has a precision of its own" in output
    run("search", path, "x", "--precision", "int4", code=2)


def test_texts_that_are_cut_are_counted(tiny_student, tmp_path):
    long = "The bus to the old station leaves at seven in the morning. " * 9
    line = "2 of 3 texts have more than the 48 tokens that tiny-student reads: the rest of them is not in their vectors"
    file = tmp_path / "lines.txt"
    file.write_text(f"{long}\nshort\n{long}\n", encoding="utf-8")
    for words in (
        ["-i", file],
        ["-i", file, "-o", tmp_path / "v.npy", "-q"],
        [long, "short", long],
        ["--json", long, "", long],
    ):
        assert run("encode", tiny_student, *words).stderr.strip().splitlines()[-1].startswith(line.split(":")[0]), words
    assert line in run("compare", tiny_student, long, "short", long).stderr
    assert "tokens that" not in run("encode", tiny_student, "short", "").stderr


def test_a_file_becomes_the_vectors_of_its_lines_in_every_form(model, file, tmp_path):
    expected = model.encode(LINES)
    packed = tmp_path / "lines.txt.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    npy, parquet, lines = (tmp_path / f"out{suffix}" for suffix in (".npy", ".parquet", ".jsonl"))
    run("encode", "-i", file, "-o", npy)
    run("encode", "msdc-mini", "-i", packed, "-o", parquet)
    run("encode", "-i", "-", "-o", lines, text=file.read_text(encoding="utf-8"))
    vectors = np.load(npy)
    assert vectors.dtype == np.float32
    assert close(vectors, expected)
    assert np.load(npy, mmap_mode="r").shape == expected.shape
    table = pq.read_table(parquet)
    assert table["text"].to_pylist() == LINES
    assert close(np.array(table["vector"].to_pylist(), np.float32), expected)
    rows = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    assert [row["text"] for row in rows] == LINES
    assert np.allclose([row["vector"] for row in rows], expected, atol=1e-7)


def test_blocks_of_any_size_give_one_file(model, tmp_path, monkeypatch):
    monkeypatch.setattr("msdc.commands.vectors.CHUNK", 5)
    texts = [f"sentence {n} of the text" for n in range(23)]
    blocks = list(encode_stream(model, of_texts(iter(texts))))
    assert [len(block.texts) for block, _ in blocks] == [5, 5, 5, 5, 3]
    expected = np.concatenate([vectors for _, vectors in blocks])
    for suffix in (".npy", ".parquet", ".jsonl"):
        assert (
            encode_to_file(model, Texts(of_texts(iter(texts))), tmp_path / f"a{suffix}", describe(model, "float32"))
            == 23
        )
    assert np.array_equal(np.load(tmp_path / "a.npy"), expected)
    assert np.array_equal(np.array(pq.read_table(tmp_path / "a.parquet")["vector"].to_pylist(), np.float32), expected)
    # Nothing beyond the block in hand is held: a source without end gives its first block.
    endless = encode_stream(model, of_texts(f"line {n}" for n in itertools.count(1)))
    assert next(endless)[0].texts == [f"line {n}" for n in range(1, 6)]
    assert next(endless)[1].shape == (5, model.width)


@pytest.mark.parametrize("form", ["csv", "csv.gz", "tsv", "jsonl", "parquet"])
def test_a_column_of_a_table(model, tmp_path, form):
    path = tmp_path / f"table.{form}"
    texts = ["One, two.", "", 'Say "three".']
    if form == "parquet":
        pq.write_table(pa.table({"id": ["a", "b", "c"], "review": texts}), path)
    elif form == "jsonl":
        path.write_text("".join(json.dumps({"id": n, "review": text}) + "\n" for n, text in enumerate(texts)))
    else:
        # Quotes of csv are taken off, those of tab-separated text are text.
        cells = texts if form == "tsv" else ['"One, two."', '""', '"Say ""three""."']
        delimiter = "\t" if form == "tsv" else ","
        content = f"id{delimiter}review\n" + "".join(f"{n}{delimiter}{cell}\n" for n, cell in enumerate(cells))
        path.write_bytes(gzip.compress(content.encode()) if form.endswith("gz") else content.encode())
    run("encode", "-i", path, "--column", "review", "-o", tmp_path / "out.npy")
    assert close(np.load(tmp_path / "out.npy"), model.encode(texts))
    run("encode", "-i", path, "--column", "2", "-o", tmp_path / "two.npy")
    assert close(np.load(tmp_path / "two.npy"), model.encode(texts))
    wrong = shown("encode", "-i", path, "--column", "nine")
    assert "no column 'nine' (it has " in wrong
    assert "review" in wrong
    assert form == "tsv" or "name the column of the texts as `column`" in shown("encode", "-i", path)


def test_the_shipped_model_is_the_default_and_a_model_is_distinguished_from_a_text(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    piped = run("encode", "--column", "text", "--json", text='id,text\n1,"a, b"\n2,c\n')
    assert [row["text"] for row in json.loads(piped.stdout)] == ["a, b", "c"]
    done = run("encode", "hello there", "--json")
    assert "model: msdc-mini (to use another, put it before the texts)" in done.stderr
    (row,) = json.loads(done.stdout)
    assert np.allclose(row["vector"], model.encode(["hello there"])[0], atol=1e-6)
    assert json.loads(run("encode", "msdc-mini", "hello there", "--json").stdout) == [row]
    assert len(json.loads(run("encode", "msdc-mini", "msdc-mini", "--json").stdout)) == 1
    empty = run("encode", "msdc-mini", "--json", text="")
    assert empty.stdout == "[]\n"
    assert empty.stderr == "standard input: no text to encode\n"
    shown = run("compare", "yes", "ja", "cheese").stdout.splitlines()
    assert len(shown) == 2
    assert shown[0].endswith("ja")


@pytest.mark.parametrize("typo", ["msdc-mimi", "msdc_mini", "MSDC-Mini", "all-MiniLM-L6-v3"])
def test_a_mistyped_model_is_no_text(typo):
    for verb, words in (("encode", [typo, "x"]), ("compare", [typo, "x", "y"]), ("encode", [typo])):
        assert f"{typo}: no model of this name; did you mean" in shown(verb, *words)
    # After a model it is a text, and words that only start like a name are texts.
    for words in (["msdc-mini", typo], ["mini", "x"], ["msdc mini is small"]):
        assert run("encode", *words, "--json").exit_code == 0


def test_a_file_given_as_a_text_is_noticed(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    for words in (["encode", "lines.txt"], ["encode", "msdc-mini", "lines.txt"], ["compare", "a", "lines.txt"]):
        assert "lines.txt: a file; pass -i lines.txt to read its lines" in shown(*words)


def test_what_is_not_utf8_is_one_line_with_the_byte(tmp_path):
    raw = "good line\nfünf ".encode() + b"\xe4\n"
    path = tmp_path / "latin.txt"
    path.write_bytes(raw)
    message = "line 2: not valid UTF-8 (invalid continuation byte at byte 16)"
    for words, stdin in (
        (["encode", "-i", str(path)], None),
        (["encode", "-i", "-"], raw),
        (["compare"], raw),
        (["search", str(path), "x"], None),
        (["compress", "vocabulary", "--corpus", str(path), "-o", str(tmp_path / "out")], None),
    ):
        done = CliRunner().invoke(cli, words, input=stdin)
        assert done.exception.exit_code == 2 and message in str(done.exception), words
    for words in (["encode", "STRANGE"], ["compare", "STRANGE", "x"]):
        strange = os.fsdecode(b"f\xc3\xbc \xff")
        done = CliRunner().invoke(cli, [strange if word == "STRANGE" else word for word in words])
        assert str(done.exception) == "TEXT 1: not valid UTF-8 (at byte 4)"


def test_files_are_whole_or_absent_and_never_replaced_unasked(file, tmp_path):
    out = tmp_path / "out.npy"
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"fine\n" * 10 + b"\xff\n")
    run("encode", "-i", broken, "-o", out, code=2)
    assert not out.exists()
    assert not list(tmp_path.glob(".*"))
    out.write_bytes(b"mine")
    assert "exists already" in shown("encode", "-i", file, "-o", out)
    assert out.read_bytes() == b"mine"
    run("encode", "-i", file, "-o", out, "--force")
    assert np.load(out).shape[0] == len(LINES)
    assert "vectors can be written as .npy" in shown("encode", "x", "-o", tmp_path / "a.txt")
    assert "exclude each other" in run("encode", "msdc-mini", "text", "-i", file, code=2).output


def test_a_runtime_needs_a_bundle_and_says_how_to_make_one():
    assert "msdc export msdc-mini --target linux -o msdc-mini-linux" in shown("encode", "--runtime", "onnx", "x y")


KIND = "default prompt"
SETTINGS = [{}, {"prompt_name": "passage"}, {"prompt": ""}]


@pytest.fixture(scope="module")
def folder():
    return kind_bundle(KIND, "onnx")[0]


@pytest.fixture(scope="module")
def encoder(folder):
    return msdc.load_encoder(folder)


def options(settings: dict[str, str], prefix: str = "") -> list[str]:
    return [f"--{prefix}{name.replace('_', '-')}={value}" for name, value in settings.items()]


def scores(value) -> list[float]:
    """Scores of whole sets in a document, the first one first."""
    if isinstance(value, dict) and "spearman" in value and "pairs" in value:
        return [float(value["spearman"])]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [score for part in inner for score in scores(part)]


def expected_score(model, **settings) -> float:
    (accuracy,) = collect(BenchSettings(tasks=("graded-pairs",))).score(configured(model, **settings))
    return float(accuracy.spearman)


@pytest.mark.parametrize("settings", SETTINGS)
def test_encode_and_compare(folder, encoder, settings):
    (row,) = json.loads(run("encode", folder, "a cat", "--json", "--truncate-dim", 9, *options(settings)).stdout)
    np.testing.assert_allclose(row["vector"], encoder.encode(["a cat"], truncate_dim=9, **settings)[0], atol=1e-5)
    (cosine,) = json.loads(run("compare", folder, "a cat", "the dog", "--json", *options(settings)).stdout)["cosine"]
    vectors_ND = encoder.encode(["a cat", "the dog"], **settings)
    assert cosine == pytest.approx(cosine_rows(vectors_ND[:1], vectors_ND[1:])[0], abs=2e-3)


def test_other_defaults_are_those_of_the_call(encoder):
    """A configured model keeps its prompts, is another key of a cache, and leaves the model alone."""
    plain, other = encoder.encode(["a cat"]), configured(encoder, prompt="the ", truncate_dim=9)
    np.testing.assert_array_equal(other.encode(["a cat"]), encoder.encode(["a cat"], prompt="the ", truncate_dim=9))
    np.testing.assert_array_equal(encoder.encode(["a cat"]), plain)
    assert (other.width, encoder.width) == (9, plain.shape[1])
    assert len({other.fingerprint(), encoder.fingerprint(), configured(encoder, truncate_dim=9).fingerprint()}) == 3
    np.testing.assert_array_equal(
        other.encode(["a cat"], prompt_name="passage"),
        encoder.encode(["a cat"], prompt_name="passage", truncate_dim=9),
    )


def test_search_prompts_of_queries_and_of_lines(folder, encoder, tmp_path):
    lines, file = ["a cat", "the dog sleeps", "a house"], tmp_path / "notes.txt"
    file.write_text("\n".join(lines) + "\n")
    for query, line in (({}, {}), ({"prompt": "a "}, {"prompt": ""}), ({}, {"prompt_name": "passage"})):
        words = [*options(query), *options(line, "line-")]
        (answer,) = json.loads(
            run("search", file, "the cat", "-m", folder, "--json", "--threshold", "-1", *words).stdout
        )["queries"]
        expected = cosine_rows(encoder.encode(["the cat"] * 3, **query), encoder.encode(lines, **line))
        cosines = {hit["text"]: hit["cosine"] for hit in answer["hits"]}
        np.testing.assert_allclose([cosines[text] for text in lines], expected, atol=2e-3)


@pytest.mark.parametrize("settings", SETTINGS[1:])
def test_evaluate(folder, encoder, settings):
    output = run("evaluate", folder, "--tasks", "graded-pairs", "--json", "--quiet", *options(settings))
    assert abs(scores(json.loads(output.stdout))[0] - expected_score(encoder, **settings)) < 0.02
    # Another prompt is another score, or this test says nothing.
    assert abs(expected_score(encoder, **settings) - expected_score(encoder)) > 0.05


def test_bench_scores_the_vectors_of_the_prompt(tmp_path):
    _, bundle = kind_bundle(KIND, "onnx")
    words = ["--device", "python", "--lengths", "4", "--runs", "1", "--tasks", "graded-pairs", "--prompt", "the cat: "]
    run("bench", bundle, *words, "--truncate-dim", 8, "--json", tmp_path / "out.json")
    score = scores(json.loads((tmp_path / "out.json").read_text()))[0]
    assert abs(score - expected_score(msdc.load_bundle(bundle), prompt="the cat: ", truncate_dim=8)) < 0.02


@pytest.mark.parametrize("words", [["--prompt-name", "qery"], ["--prompt-name", "query", "--prompt", "a"]])
def test_wrong_prompts_are_one_line(folder, words, tmp_path):
    (tmp_path / "notes.txt").write_text("a cat\n")
    search = ["search", tmp_path / "notes.txt", "a", "-m", folder]
    for command in (["encode", folder, "a"], ["compare", folder, "a", "b"], search):
        done = CliRunner().invoke(cli, [*map(str, command), *words])
        line = str(done.exception)
        assert done.exit_code != 0
        assert "\n" not in line
        assert "no prompt 'qery'; its prompts: " in line or "not both" in line


@pytest.mark.skipif(os.name == "nt", reason="closes a descriptor of POSIX")
@pytest.mark.parametrize(("words", "problem"), [(["-i", "-"], "standard input is closed"), ([], "pass at least one")])
def test_a_closed_standard_input_is_one_line(words, problem):
    command = [sys.executable, "-m", "msdc", "encode", "msdc-nano", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=lambda: os.close(0))
    assert done.returncode == 2
    assert problem in done.stderr
    assert done.stderr.count("error: ") == 1

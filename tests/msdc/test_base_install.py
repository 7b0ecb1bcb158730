"""The install without extras, used from a folder that holds modules of the user's own.

The virtual environment's packages are links to those of the running one: the closure of pyproject.toml's dependencies.
So torch and the others are absent for every way of looking for them, and nothing is downloaded.
"""

import importlib.metadata
import importlib.util
import json
import os
import tomllib
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tiny_models as tiny
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from places import ROOT
from programs import run

import msdc
from msdc.compress.student.io import load_student
from msdc.compress.student.plan import read_plan
from msdc.encoders.folder import locate_model
from msdc.export.onnx.write import write_onnx
from msdc.export.smoothing import TorchModel, smooth
from msdc.extras import EXTRAS, PACKAGES, VERBS, extra_of, install_command, named_extras
from msdc.text.tokenizer import load_tokenizer

ENTRY = "import sys\nfrom msdc.cli import main\nsys.exit(main())\n"


def project() -> dict:
    """The table `project` of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def closure(requirements: Iterable[str]) -> dict[str, importlib.metadata.Distribution]:
    """Installed distributions that the requirements bring, by name."""
    distributions: dict[str, importlib.metadata.Distribution] = {}
    todo = [Requirement(line) for line in requirements]
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        if name in distributions:
            continue
        distributions[name] = importlib.metadata.distribution(name)
        for line in distributions[name].requires or []:
            needed = Requirement(line)
            if needed.marker is None or any(
                needed.marker.evaluate({"extra": extra}) for extra in ("", *requirement.extras)
            ):
                todo.append(needed)
    return distributions


def _link_distribution(distribution: importlib.metadata.Distribution, site: Path) -> None:
    # Top-level names below site-packages; scripts in bin/ are left out.
    tops = {Path(str(file)).parts[0] for file in distribution.files or []} - {"..", "__pycache__"}
    for top in tops:
        source, target = Path(str(distribution.locate_file(top))), site / top
        if source.exists() and not target.exists():
            target.symlink_to(source)


def _write_metadata(site: Path) -> None:
    facts = project()
    folder = site / "msdc-0.0.0.dist-info"
    folder.mkdir()
    lines = ["Metadata-Version: 2.1", "Name: msdc", "Version: 0.0.0"]
    lines += [f"Requires-Dist: {line}" for line in facts["dependencies"]]
    for extra, listed in facts["optional-dependencies"].items():
        lines.append(f"Provides-Extra: {extra}")
        lines += [f'Requires-Dist: {line}; extra == "{extra}"' for line in listed]
    (folder / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class BaseInstall:
    """The environment's folder. Programs get a cache of its own, no hub, no path from outside, and end with code 0."""

    folder: Path

    def run(self, *words: str, cwd: Path) -> str:
        """What `msdc WORDS...` prints in the folder `cwd`, as the installed script runs it."""
        return self.call("msdc", *words, cwd=cwd)

    def script(self, source: str, cwd: Path) -> str:
        """What Python source prints in the folder `cwd`."""
        return self.call("python", "-c", source, cwd=cwd)

    def call(self, program: str, *words: str, cwd: Path) -> str:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "MSDC_", "VIRTUAL"))}
        isolated = {"XDG_CACHE_HOME": str(self.folder / "cache"), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1",
               "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
        return run(self.folder / "bin" / program, *words, cwd=cwd, env=inherited | isolated, input="")


def make(folder: Path) -> BaseInstall:
    """The environment in `folder`."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for distribution in closure(project()["dependencies"]).values():
        _link_distribution(distribution, site)
    (site / "msdc").symlink_to(ROOT / "msdc")
    _write_metadata(site)
    script = folder / "bin" / "msdc"
    script.write_text(f"#!{folder / 'bin' / 'python'}\n{ENTRY}", encoding="utf-8")
    script.chmod(0o755)
    return BaseInstall(folder)


TEXTS = ["The car is in the garage.", "Das Wetter ist heute schön.", "J'ai faim."]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make(tmp_path_factory.mktemp("base") / "venv")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The user's folder: their own modules, which must not be imported, and some text."""
    work_folder = tmp_path_factory.mktemp("user")
    for name in ("export", "bench", "distill", "compress", "msdc_user"):
        (work_folder / f"{name}.py").write_text("raise SystemExit('a module of the working directory was imported')\n")
    (work_folder / "notes.txt").write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return work_folder


def test_it_holds_no_package_of_an_extra(base, folder):
    names = [name for name in PACKAGES if name != "cryptography"]
    source = f"import importlib.util as u, json; print(json.dumps([n for n in {names} if u.find_spec(n)]))"
    assert json.loads(base.script(source, folder)) == []
    assert all(importlib.util.find_spec(name) for name in names), "not installed here: the test would prove nothing"


def test_encode_and_search(base, folder):
    base.run("encode", "-i", "notes.txt", "-o", "v.npy", cwd=folder)
    np.testing.assert_allclose(np.load(folder / "v.npy"), msdc.load_encoder("msdc-mini").encode(TEXTS), atol=1e-5)
    answer = json.loads(base.run("search", "notes.txt", "wo ist das Auto?", "--json", "-k", "2", cwd=folder))
    assert answer["queries"][0]["hits"][0]["text"] == TEXTS[0]
    again = json.loads(base.run("search", "notes.txt", "the weather", "--json", cwd=folder))
    assert again["encoded"] == 0
    assert again["queries"][0]["hits"][0]["text"] == TEXTS[1]


def test_bench_and_inspect_the_program_that_export_writes(base, folder, tmp_path):
    """The bundle is made without PyTorch; its program is, byte for byte, the one made with it."""
    base.run("bench", "--runtime", "onnx", "--device", "python", "--runs", "3", "--warmup", "1", "--json", "r.json",
             cwd=folder)  # fmt: skip
    (run,) = json.loads((folder / "r.json").read_text())["runs"]
    assert run["artifact"]["runtime"] == "onnx"
    assert run["accuracy"][0]["spearman"] > 50
    report = json.loads(base.run("inspect", "--json", cwd=folder))
    assert list(report["manifest"]["programs"])
    assert report["manifest"]["name"] == "msdc-mini"
    (bundle,) = (base.folder / "cache").rglob("bundle.json")
    assert "torch" not in json.loads(bundle.read_text())["versions"]
    mini = locate_model("msdc-mini")
    model, plan = TorchModel(load_student(mini)), read_plan(mini)
    length = model.weights.config.positions
    smoothed = smooth(model, plan, load_tokenizer(mini), length)
    write_onnx(smoothed, plan, tmp_path / "model.onnx", max_length=length, target="linux")
    for name in ("model.onnx", "model.onnx.data"):
        assert (bundle.parent / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_the_python_interface(base, folder):
    source = f"""
import sys, msdc
assert "numpy" not in sys.modules
encoder = msdc.load_encoder("msdc-mini")
vectors = encoder.encode({TEXTS!r}, batch_tokens=16)
assert vectors.shape == (3, encoder.width) and repr(encoder).startswith("Encoder('msdc-mini'")
hits = msdc.open_index({TEXTS!r}).search("a car").hits
assert hits[0].text == {TEXTS[0]!r}
from msdc.bench.accuracy import evaluate
print(evaluate(encoder, "graded-pairs", resamples=0)["spearman"] > 50)
for call in (lambda: encoder.module.parameters(), lambda: msdc.load_encoder({str(folder / "stock")!r})):
    try:
        call()
    except msdc.InputError as error:
        print(error)
"""
    stock = folder / "stock"
    stock.mkdir()
    (stock / "config.json").write_text('{"model_type": "bert"}')
    lines = base.script(source, folder).splitlines()
    assert lines[0] == "True"
    assert len(lines) == 3
    assert all(line.endswith(f"needs PyTorch: {install_command('train')}") for line in lines[1:]), lines


# Words, the line's subject, what it needs, the extra.
LINES = [
    ("distill mkd -o run", "error: msdc distill", "PyTorch", "train"),
    ("compress quantize msdc-mini -o q", "error: msdc compress", "PyTorch", "train"),
    ("quickstart -o q", "error: msdc quickstart", "PyTorch", "all"),
    ("export ./stock --target linux --runtime onnx -o b", "error: stock, a stock model,", "PyTorch", "export"),
    ("encode ./stock x", "error: stock, a stock model,", "PyTorch", "train"),
    ("encode -i notes.txt -o v.parquet", "error: a parquet file", "pyarrow", "data"),
    ("corpus t.parquet", "t.parquet: a parquet file", "pyarrow", "data"),
    ("corpus t.tmx", "t.tmx: TMX", "defusedxml", "data"),
]
RUNTIME_LINES = [
    ("bench both --runtime executorch", "error: runtime executorch", "ExecuTorch", "executorch"),
    ("encode both x --runtime executorch", "error: runtime executorch", "ExecuTorch", "executorch"),
]


def test_an_export_without_executorch_names_the_other_runtime(base, folder):
    ((code, output),) = one_after_another(base, folder, ["export msdc-mini --target linux -o b"])
    command, last = install_command("export"), output.strip().splitlines()[-1]
    assert (code, last) == (2, f"error: runtime executorch needs ExecuTorch: {command}, or take `--runtime onnx`")


def one_after_another(base, folder, lines):
    """Exit code and output of commands, in one process for all."""
    source = f"""
import contextlib, io, json
from msdc.cli import main
found = []
for words in {[line.split() for line in lines]!r}:
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        try:
            main(words)
        except SystemExit as error:
            found.append([error.code, said.getvalue()])
print(json.dumps(found))
"""
    return json.loads(base.script(source, folder).splitlines()[-1])


def check_lines(base, folder, lines):
    """Each ends with exit code 2 and its line, and nothing is written."""
    before = sorted(folder.rglob("*"))
    outcomes = one_after_another(base, folder, [words for words, *_ in lines])
    for (code, output), (words, what, needed, extra) in zip(outcomes, lines, strict=True):
        last = output.strip().splitlines()[-1]
        assert (code, last) == (2, f"{what} needs {needed}: {install_command(extra)}"), (words, output)
    assert sorted(folder.rglob("*")) == before


def test_verbs_name_the_extra_that_they_lack(base, folder):
    stock = folder / "stock"
    stock.mkdir(exist_ok=True)
    (stock / "config.json").write_text('{"model_type": "bert"}')
    (folder / "t.parquet").write_bytes(b"PAR1")
    (folder / "t.tmx").write_text("<tmx/>")
    check_lines(base, folder, LINES)


def test_a_bundle_with_both_programs_runs_the_one_it_can(base, folder):
    both = tiny.bundle("int8", "both")
    source = f"import msdc; b = msdc.load_bundle({str(both)!r}); print(b.runtime, b.encode(['x']).shape[0])"
    assert base.script(source, folder).split() == ["onnx", "1"]
    (folder / "both").symlink_to(both)
    check_lines(base, folder, RUNTIME_LINES)


def test_doctor_plans_and_corpora_need_no_extra(base, folder):
    answer = json.loads(base.run("doctor", "--json", cwd=folder))
    assert answer["healthy"] is True
    assert answer["summary"].startswith("the base install is complete; these verbs need more: compress, distill, ")
    remedies = {check["name"]: check["remedy"] for check in answer["checks"] if check["group"] == "extras"}
    assert remedies["torch"] == install_command("train")
    assert remedies["executorch"] == install_command("executorch")
    lines = ["compress plan --shape minilm --json", "corpus notes.txt"]
    (plan, planned), (corpus, read) = one_after_another(base, folder, lines)
    assert (plan, corpus) == (0, 0)
    assert "bytes" in planned
    assert "garage" in read


def _expanded(extra: str, listed: dict[str, list[str]]) -> set[str]:
    names: set[str] = set()
    for line in listed[extra]:
        requirement = Requirement(line)
        if requirement.name == "msdc":
            names |= {name for inner in requirement.extras for name in _expanded(inner, listed)}
        else:
            names.add(requirement.name)
    return names


def test_the_table_of_extras_is_that_of_the_project():
    """msdc/extras.py against pyproject.toml; a package has one version rule (but for the exact pins next to
    ExecuTorch), and no extra repeats the base install."""
    facts = project()
    listed = facts["optional-dependencies"]
    for extra, names in EXTRAS.items():
        assert _expanded(extra, listed) == set(names), extra
    assert set(VERBS.values()) <= set(listed)
    rules: dict[str, set[str]] = {}
    for line in [*facts["dependencies"], *(line for lines in listed.values() for line in lines)]:
        requirement = Requirement(line)
        if line in listed["executorch"]:
            continue
        rules.setdefault(requirement.name, set()).add(str(requirement.specifier))
    assert not {name: versions for name, versions in rules.items() if name != "msdc" and len(versions) > 1}
    bases = {Requirement(line).name for line in facts["dependencies"]}
    assert not bases & {name for _, name in PACKAGES.values()}
    assert {name for names in EXTRAS.values() for name in names} == {name for _, name in PACKAGES.values()}


def test_the_verbs_extra_goes_first():
    def extra_for(package, verb):
        with named_extras("x", verb):
            return extra_of(package)

    assert extra_for("torch", "") == "train"
    assert extra_for("torch", "export") == "export"
    assert extra_for("pyarrow", "corpus") == "data"
    assert extra_for("pyarrow", "distill") == "train"
    assert extra_for("executorch", "bench") == "executorch"
    assert extra_for("executorch", "quickstart") == "all"
    assert extra_for("numpy", "") is None
    assert extra_of("torch") == "train"

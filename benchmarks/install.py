"""Size of an installation, and its commands: the wheel in empty environments, the base install and each extra.

    python benchmarks/install.py --write docs/results/install.md

For each: a new virtual environment, `pip install` of the wheel with the extra, the bytes of site-packages, and the
commands that it is for, run in a folder with the user's own modules export, bench, distill and compress.
`--torch-index` is the index that torch is installed from first (on Linux PyTorch's CPU index; the default wheel there
includes several gigabytes of CUDA libraries).
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from results_page import ROOT, KeptRows, model_version, options_for, table, write_page

from msdc.export import export
from msdc.text.quickstart import parallel_table

TORCH = "torch==2.13.0"
BASE = (
    "encode -i notes.txt -o v.npy",
    "search notes.txt 'wo ist das Auto?'",
    "bench --runtime onnx --device python --runs 20 -o r.json",
    "inspect",
    "compress plan --shape minilm",
    "corpus notes.txt",
    "doctor",
)
EXPORTS = tuple(f"export msdc-mini --target {target} -o {target}" for target in ("linux", "android", "ios", "web"))
# Its teacher comes with the wheel: no model is fetched.
RECIPE = """\
name: mine
teacher: msdc-mini
assistant: {vocabulary: {train: 2000}, rows: alignment, max_length: 64}
student: {bottleneck: 64, layers: [0, 1, 2], repeats: 1, max_length: 64}
corpora: [{path: mine.en-de.tsv}]
heldout: {pairs: 20, share: 0.05}
stages:
  - {name: train, teacher: teacher, objective: multilingual_mse, steps: 5, batch: 32, max_length: 64,
     learning_rate: 4.0e-4}
"""


class Kind(NamedTuple):
    """One installation: its extra, whether it holds torch, and commands that must work there."""

    extra: str
    torch: bool
    commands: tuple[str, ...]


KINDS = (
    Kind("", False, BASE),
    Kind("data", False, ("encode -i notes.txt -o v.parquet", "search v.parquet Auto --column text", "corpus t.tmx")),
    Kind("executorch", True, ("encode bundle x --runtime executorch", "bench bundle --device python --runs 20")),
    Kind("export", True, (*EXPORTS, "encode msdc-mini x", "inspect linux")),
    Kind(
        "train", True,
        ("compress vocabulary msdc-mini -o small --languages de,en", "evaluate msdc-mini --tasks graded-pairs",
         "distill mine.yaml -o run", "compare run 'A car' Auto"),
    ),
    Kind("all", True, ("distill mine.yaml -o run", *EXPORTS[:1], "bench linux --device python --runs 20 -o r.html")),
)  # fmt: skip


def tree_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def user_folder(folder: Path, bundle: Path | None) -> Path:
    """A user's folder: modules that must not be imported, text, a bundle of both programs."""
    folder.mkdir()
    for name in ("export", "bench", "distill", "compress"):
        (folder / f"{name}.py").write_text("raise SystemExit('a module of the working directory was imported')\n")
    (folder / "notes.txt").write_text("The car is on level 2.\nDas Wetter ist schön.\n", encoding="utf-8")
    unit = "<tuv xml:lang='en'><seg>A car</seg></tuv><tuv xml:lang='de'><seg>Auto</seg></tuv>"
    (folder / "t.tmx").write_text(f"<tmx version='1.4'><body><tu>{unit}</tu></body></tmx>", encoding="utf-8")
    codes, rows = parallel_table()
    pairs = [f"{row[codes.index('en')]}\t{row[codes.index('de')]}\n" for row in rows]
    (folder / "mine.en-de.tsv").write_text("".join(pairs), encoding="utf-8")
    (folder / "mine.yaml").write_text(RECIPE, encoding="utf-8")
    if bundle is not None:
        shutil.copytree(bundle, folder / "bundle")
    return folder


def run(command: str | Sequence[str | Path], cwd: Path, cache: Path | None = None) -> None:
    """Run a program or a shell line, without variables that would change what it imports."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MSDC_", "VIRTUAL"))
    }
    environment = inherited if cache is None else inherited | {"XDG_CACHE_HOME": str(cache), "HF_HUB_OFFLINE": "1"}
    words = command if isinstance(command, str) else [str(word) for word in command]
    shell = isinstance(command, str)
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False, shell=shell)
    if done.returncode:
        raise SystemExit(f"{words}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")


def install(kind: Kind, wheel: Path, bundle: Path, work: Path, torch_index: str | None) -> dict[str, Any]:
    name = kind.extra or "base"
    folder = work / f"venv-{name}"
    run([sys.executable, "-m", "venv", folder], work)
    pip, (site,) = folder / "bin" / "pip", (folder / "lib").glob("python*/site-packages")
    empty = tree_bytes(site)
    if kind.torch and torch_index:
        run([pip, "install", "-q", TORCH, "--index-url", torch_index], work)
    run([pip, "install", "-q", f"{wheel}[{kind.extra}]" if kind.extra else wheel], work)
    size = tree_bytes(site) - empty
    packages = len(list(site.glob("*.dist-info"))) - 2  # pip and setuptools, or pip and this package
    user = user_folder(work / f"user-{name}", bundle if "bundle" in " ".join(kind.commands).split() else None)
    for words in kind.commands:
        run(f"{folder / 'bin' / 'msdc'} {words}", user, folder / "cache")
    parts = [path for path in site.glob("torch*") if path.name.split("-")[0] in ("torch", "torchgen")]
    torch = sum(map(tree_bytes, parts))
    shutil.rmtree(folder)
    return {"extra": kind.extra, "bytes": size, "packages": packages, "torch_bytes": torch,
            "commands": list(kind.commands)}  # fmt: skip


def page(installs: Sequence[dict[str, Any]], wheel_bytes: int) -> str:
    rows, commands = [], []
    for row in installs:
        name = f"`msdc[{row['extra']}]`" if row["extra"] else "`msdc`"
        torch = f"{row['torch_bytes'] / 1e6:.0f}" if row["torch_bytes"] else ""
        rows.append((name, f"{row['bytes'] / 1e6:.0f}", torch, row["packages"]))
        commands += [(name, f"`msdc {words}`") for words in row["commands"]]
    return (
        f"Megabytes (10^6 bytes) of site-packages after `pip install`, without pip itself, including the wheel of msdc "
        f"({wheel_bytes / 1e6:.1f} MB with the weights of msdc-mini). torch is the CPU build.\n\n"
        + table(["install", "MB", "of which torch", "packages"], rows)
        + "\n\n## Commands that ran there\n\nIn a folder with the user's own `export.py`, `bench.py`, `distill.py` and "
        "`compress.py`, which raise an error when imported.\n\n" + table(["install", "command"], commands)
    )


def main() -> None:
    parser = options_for(__doc__, "install")
    parser.add_argument("--torch-index", help="index of torch's CPU wheels")
    parser.add_argument("--only", help="comma-separated extras; base for none")
    parser.add_argument("--keep", type=Path, help="file of figures as JSON lines: rows found there are kept")
    options = parser.parse_args()
    rows = KeptRows(options.keep)
    with tempfile.TemporaryDirectory(prefix="msdc-install-") as temporary:
        work = Path(temporary)
        source = work / "source"
        run(["git", "checkout-index", "-a", f"--prefix={source}/"], ROOT)
        run([sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", work, source], work)
        (wheel,) = work.glob("*.whl")
        bundle, _ = export("msdc-mini", target="linux", output=work / "bundle")
        for kind in KINDS:
            if not rows.has(extra=kind.extra) and (
                not options.only or (kind.extra or "base") in options.only.split(",")
            ):
                rows.add(install(kind, wheel, bundle, work, options.torch_index))
        text = page(rows, wheel.stat().st_size)
    write_page(
        options.write, "Size of an installation", model_version("msdc-mini"), text, "torch onnxruntime executorch"
    )


if __name__ == "__main__":
    main()

"""Students without layers next to msdc-mini and model2vec: bytes, processor time per sentence, scores.

    msdc distill msdc-mini:static --data DATA -o runs/static
    python benchmarks/static.py --models msdc-mini runs/static/student --data DATA --work WORK \
        --write docs/results/static.md

Students are exported to ExecuTorch (int8) and run from Python on one thread, as is model2vec, which is distilled from
the same teacher where it is installed (`pip install model2vec skeletoken`, no dependency of msdc). All models encode
the same FLORES sentences in turn, one by one and in one list.
"""

import argparse
import json
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from results_page import KeptRows, options_for, spread, table, write_page

from msdc.bench import evaluate_all
from msdc.encoders.folder import locate_model
from msdc.export import export
from msdc.export.bundle import load_bundle
from msdc.text.text_files import iterate_lines

TEACHER, WIDTH, LANGUAGES = "all-MiniLM-L6-v2", 256, ("eng_Latn", "deu_Latn", "spa_Latn")
SENTENCES, ROUNDS = 200, 5


class Model2Vec:
    """model2vec's static model of the teacher, as an object with `encode`; half-precision file in `folder`."""

    def __init__(self, folder: Path) -> None:
        from model2vec import StaticModel
        from model2vec.distill import distill

        self.name = f"model2vec {WIDTH}"
        if not folder.is_dir():
            distill(str(locate_model(TEACHER)), pca_dims=WIDTH, quantize_to="float16").save_pretrained(str(folder))
        self.model = StaticModel.from_pretrained(str(folder))
        self.bytes = (folder / "model.safetensors").stat().st_size

    def encode(self, texts: list[str]) -> np.ndarray:
        """One vector per text."""
        found: np.ndarray = self.model.encode(texts, use_multiprocessing=False)
        return found


def opened(models: list[str], work: Path) -> dict[str, tuple[Any, Any, int]]:
    """Of each model: what encodes, what `evaluate_all` takes, and the bytes of its program."""
    found: dict[str, tuple[Any, Any, int]] = {}
    for name in models:
        folder = work / name.strip("/").replace("/", "-")
        if not (folder / "bundle.json").is_file():
            export(name, target="linux", runtime="executorch", precision="int8", gates=False, output=folder, force=True)
        bundle = load_bundle(folder, "executorch", 1)
        found[name] = bundle, folder, bundle.manifest.program_bytes("executorch")
    try:
        peer = Model2Vec(work / "model2vec")
        found[peer.name] = peer, peer, peer.bytes
    except ImportError as error:
        print(f"without model2vec: {error}")
    return found


def milliseconds(encode: Any, texts: list[str], together: bool) -> float:
    """Processor time per text."""
    start = time.process_time()
    for some in [texts] if together else [[text] for text in texts]:
        encode(some)
    return 1000 * (time.process_time() - start) / len(texts)


def main() -> None:
    parser = options_for(__doc__, "static")
    parser.add_argument("--models", nargs="+", default=["msdc-mini"], help="students: names or folders")
    parser.add_argument("--tasks", default="sts17/en-en,sts17/es-es,sts17/en-es,stsb", help="as of msdc evaluate")
    parser.add_argument("--data", type=Path, required=True, help="folder of the public data sets")
    parser.add_argument("--work", type=Path, required=True, help="folder for bundles and rows; kept")
    options: argparse.Namespace = parser.parse_args()
    files = [next((options.data / "flores200" / "dev").glob(f"{code}.*")) for code in LANGUAGES]
    texts = [line for file in files for _, line in islice(iterate_lines(file), -(-SENTENCES // len(files)))][:SENTENCES]
    options.work.mkdir(parents=True, exist_ok=True)
    rows, models = KeptRows(options.work / "results.jsonl"), opened(options.models, options.work)
    times: dict[str, dict[bool, list[float]]] = {name: {True: [], False: []} for name in models}
    for _ in range(ROUNDS):
        for name, (model, _, _) in models.items():
            for together, kept in times[name].items():
                kept.append(milliseconds(model.encode, texts, together))
    shown = []
    for name, (_, scored, size) in models.items():
        if not rows.has(name=name):
            found = json.loads(json.dumps(evaluate_all(scored, options.tasks, data=options.data).as_json()))["results"]
            rows.add({"name": name, "scores": {one["name"]: round(one[one["main"]], 1) for one in found}})
        scores = next(row["scores"] for row in rows if row["name"] == name)
        single, joint = (spread(times[name][together], 3) for together in (False, True))
        shown.append((name, f"{size:,}", single, joint, *(f"{score:.1f}" for score in scores.values())))
    heads = ("model", "bytes", "ms, one by one", f"ms, {SENTENCES} together", *scores)
    body = f"Processor time per sentence, median [range] of {ROUNDS} rounds; Spearman x 100.\n\n{table(heads, shown)}"
    write_page(options.write, "Students without layers", "those named below", body, "executorch numpy")


if __name__ == "__main__":
    main()

"""Export a model and compare the artifacts with the float model.

    python examples/export_bundle.py OUT
    python examples/export_bundle.py OUT --model all-MiniLM-L6-v2 --runtime onnx

The same as `msdc export MODEL --target linux --runtime both -o OUT`, from Python; takes about a minute.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import msdc
from msdc.export import export

TEXTS = ["Where is the station?", "Wo ist der Bahnhof?", "¿Dónde está la estación?", "İstasyon nerede?"]


def main() -> None:
    """Export, then compare each runtime with the float model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="bundle folder to write")
    parser.add_argument("--model", default="msdc-mini")
    parser.add_argument("--runtime", choices=("executorch", "onnx", "both"), default="both")
    options = parser.parse_args()

    # Gates are checked here: a GateError names the limit that was not met.
    folder, manifest = export(options.model, target="linux", runtime=options.runtime, output=options.out)
    float_ND = msdc.load_encoder(options.model).encode(TEXTS)
    for runtime in manifest.runtimes:
        bundle = msdc.load_bundle(folder, runtime=runtime)
        cosine_N = (bundle.encode(TEXTS) * float_ND).sum(axis=1)
        print(f"{runtime}: lowest cosine with the float model {cosine_N.min():.4f}")
    size = sum(file.bytes for name, file in manifest.files.items() if name.startswith("model."))
    print(f"{folder}: {manifest.precision}, width {manifest.width}, programs {size:,} bytes")


if __name__ == "__main__":
    main()

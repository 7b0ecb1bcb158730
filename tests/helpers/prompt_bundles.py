"""Bundles of tiny folders with prompts or static embeddings, made once per test run."""

from pathlib import Path

from folder_kinds import write_folder
from tiny_models import once


def kind_bundle(kind: str, runtime: str) -> tuple[Path, Path]:
    """(folder of `folder_kinds.KINDS`, its fp32 bundle for linux)."""
    from msdc.export import export

    name = kind.replace(" ", "-").replace(",", "")
    folder = once(f"folder-{name}", lambda target: write_folder(target.parent / name, kind).rename(target))

    def make(target: Path) -> None:
        export(str(folder), target="linux", runtime=runtime, precision="fp32", out=target)

    return folder, once(f"bundle-{name}-{runtime}", make)


UNPOOLED = "prompt not pooled, mean"

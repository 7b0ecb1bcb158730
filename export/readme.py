"""The README.md inside a bundle: what an engineer needs to use it, with this bundle's own numbers."""

from __future__ import annotations

from export.manifest import GOLDEN_FILE, Manifest


def bundle_readme(manifest: Manifest) -> str:
    """Markdown for `manifest`."""
    return f"# {manifest.name}\n\nSee {GOLDEN_FILE}.\n"

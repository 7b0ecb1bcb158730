"""Names of models as folders, packages and modules of apps, which take ASCII alone."""

from __future__ import annotations

import hashlib
import re


def plain_name(name: str, others: str = r"[^A-Za-z0-9_.-]+") -> str:
    """`name` with a hyphen for each run of characters that the pattern `others` matches.

    Where that changes it, the first digits of its sha256 follow: two names in another script are two plain names.
    """
    plain = re.sub(others, "-", name).strip("-.")
    return plain if plain == name else f"{plain or 'model'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"

"""The codes of one language in the published sets: two letters (ours), three (Tatoeba), with script (FLORES)."""

from __future__ import annotations

from msdc.errors import InputError

# code: (LASER Tatoeba, FLORES-200)
CODES = {
    "ar": ("ara", "arb_Arab"),
    "bg": ("bul", "bul_Cyrl"),
    "bn": ("ben", "ben_Beng"),
    "cs": ("ces", "ces_Latn"),
    "de": ("deu", "deu_Latn"),
    "el": ("ell", "ell_Grek"),
    "en": ("eng", "eng_Latn"),
    "es": ("spa", "spa_Latn"),
    "et": ("est", "est_Latn"),
    "eu": ("eus", "eus_Latn"),
    "fa": ("pes", "pes_Arab"),
    "fi": ("fin", "fin_Latn"),
    "fr": ("fra", "fra_Latn"),
    "he": ("heb", "heb_Hebr"),
    "hi": ("hin", "hin_Deva"),
    "hu": ("hun", "hun_Latn"),
    "id": ("ind", "ind_Latn"),
    "it": ("ita", "ita_Latn"),
    "ja": ("jpn", "jpn_Jpan"),
    "ka": ("kat", "kat_Geor"),
    "ko": ("kor", "kor_Hang"),
    "nl": ("nld", "nld_Latn"),
    "pl": ("pol", "pol_Latn"),
    "pt": ("por", "por_Latn"),
    "ro": ("ron", "ron_Latn"),
    "ru": ("rus", "rus_Cyrl"),
    "sv": ("swe", "swe_Latn"),
    "sw": ("swh", "swh_Latn"),
    "ta": ("tam", "tam_Taml"),
    "th": ("tha", "tha_Thai"),
    "tl": ("tgl", "tgl_Latn"),
    "tr": ("tur", "tur_Latn"),
    "uk": ("ukr", "ukr_Cyrl"),
    "ur": ("urd", "urd_Arab"),
    "vi": ("vie", "vie_Latn"),
    "zh": ("cmn", "zho_Hans"),
}
SHIPPED = ("en", "de", "es", "fr", "it", "nl", "tr", "ar")
TWO_OF_THREE = {three: two for two, (three, _) in CODES.items()}


def three(code: str) -> str:
    """Tatoeba's code; a three-letter code is returned unchanged."""
    return CODES[code][0] if code in CODES else code


def flores(code: str) -> str:
    """FLORES's code; a code with a script is returned unchanged.

    Raises:
        InputError: unknown language.
    """
    if code in CODES:
        return CODES[code][1]
    if "_" in code:
        return code
    raise InputError(f"unknown language {code!r}; known: {', '.join(CODES)}, or FLORES's own code such as lij_Latn")

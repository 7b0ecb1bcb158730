"""Which characters a language uses, to decide whether a vocabulary piece can belong to it.

Latin, Cyrillic and Greek languages share most letters, so they are told apart by their own letters; other scripts by
their Unicode blocks. Digits, punctuation and symbols of common use belong to every language.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from msdc.errors import InputError

_LATIN = "abcdefghijklmnopqrstuvwxyz"
_RUSSIAN = "абвгдеёжзийклмнопрстуфхцчшщъыьэюя"
_GREEK = "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ"
# Letters beyond a-z.
_LATIN_LANGUAGES = {
    "af": "áéèêëíîïóôöúû", "az": "çəğıöşü", "bs": "čćđšž", "ca": "àçèéíïòóúü", "cs": "áčďéěíňóřšťúůýž", "cy": "âêîôûŵŷ",
    "da": "æøåé", "de": "äöüß", "en": "", "es": "áéíñóúü", "et": "äõöüšž", "eu": "ñç", "fi": "äöå",
    "fr": "àâæçèéêëîïôœùûüÿ", "ga": "áéíóú", "gl": "áéíñóúü", "hr": "čćđšž", "hu": "áéíóöőúüű", "id": "é",
    "is": "áðéíóúýþæö", "it": "àèéìíîòóùú", "lt": "ąčęėįšųūž", "lv": "āčēģīķļņšūž", "ms": "", "mt": "àċèġħìòùż",
    "nb": "æøåéòô", "nl": "áèéëïíóöúü", "nn": "æøåéòô", "no": "æøåéòô", "pl": "ąćęłńóśźż", "pt": "àáâãçéêíóôõúü",
    "ro": "ăâîșşțţ", "sk": "áäčďéíĺľňóôŕšťúýž", "sl": "čšž", "sq": "çë", "sv": "åäöé", "sw": "", "tl": "ñ",
    "tr": "çğıöşüâîû",
    "vi": "àáâãèéêìíòóôõùúýăđĩũơưạảấầẩẫậắằẳẵặẹẻẽếềểễệỉịọỏốồổỗộớờởỡợụủứừửữựỳỵỷỹ",
}  # fmt: skip
_CYRILLIC_LANGUAGES = {
    "be": _RUSSIAN + "ўі", "bg": _RUSSIAN, "kk": _RUSSIAN + "әғқңөұүһі", "ky": _RUSSIAN + "ңөү",
    "mk": _RUSSIAN + "ѓѕјљњќџ", "mn": _RUSSIAN + "өү", "ru": _RUSSIAN,
    "sr": _RUSSIAN + "ђјљњћџ" + _LATIN + "čćđšž", "uk": _RUSSIAN + "єіїґ",
}  # fmt: skip
_ARABIC = [(0x0600, 0x06FF), (0x0750, 0x077F), (0xFB50, 0xFDFF), (0xFE70, 0xFEFF)]
_DEVANAGARI = [(0x0900, 0x097F)]
_CJK = [(0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x3000, 0x303F), (0xFF00, 0xFFEF)]
_KANA = [(0x3040, 0x30FF), (0x31F0, 0x31FF)]
_BLOCK_LANGUAGES = {
    "am": [(0x1200, 0x139F)], "ar": _ARABIC, "bn": [(0x0980, 0x09FF), (0x0964, 0x0965)], "fa": _ARABIC,
    "gu": [(0x0A80, 0x0AFF), (0x0964, 0x0965)], "he": [(0x0590, 0x05FF)], "hi": _DEVANAGARI, "hy": [(0x0530, 0x058F)],
    "ja": _CJK + _KANA, "ka": [(0x10A0, 0x10FF)], "km": [(0x1780, 0x17FF)], "kn": [(0x0C80, 0x0CFF)],
    "ko": [(0x1100, 0x11FF), (0x3130, 0x318F), (0xAC00, 0xD7AF), (0x3000, 0x303F)], "lo": [(0x0E80, 0x0EFF)],
    "ml": [(0x0D00, 0x0D7F)], "mr": _DEVANAGARI, "my": [(0x1000, 0x109F)], "ne": _DEVANAGARI,
    "pa": [(0x0A00, 0x0A7F), (0x0964, 0x0965)], "ps": _ARABIC, "si": [(0x0D80, 0x0DFF)], "ta": [(0x0B80, 0x0BFF)],
    "te": [(0x0C00, 0x0C7F)], "th": [(0x0E00, 0x0E7F)], "ug": _ARABIC, "ur": _ARABIC, "zh": _CJK,
}  # fmt: skip
# Signs every language meets: Latin-1 and general punctuation, currency, arrows, mathematics, emoji and their joiners.
_COMMON_SIGNS = [
    (0x0000, 0x00BF), (0x2000, 0x206F), (0x20A0, 0x20CF), (0x2100, 0x214F), (0x2190, 0x22FF), (0x2300, 0x23FF),
    (0x2500, 0x27BF), (0xFE0E, 0xFE0F), (0x1F000, 0x1FAFF),
]  # fmt: skip


def known_languages() -> list[str]:
    """Codes that `--languages` takes."""
    return sorted({*_LATIN_LANGUAGES, *_CYRILLIC_LANGUAGES, *_BLOCK_LANGUAGES, "el"})


class Alphabet:
    """The characters of some languages together."""

    def __init__(self, languages: Iterable[str]) -> None:
        self.languages = tuple(languages)
        letters: set[str] = set()
        self.blocks = list(_COMMON_SIGNS)
        self.single_blocks: list[tuple[int, int]] = []
        for language in self.languages:
            if language in _LATIN_LANGUAGES:
                letters |= set(_LATIN + _LATIN_LANGUAGES[language])
                # Names keep their foreign accents: single letters of Latin-1 and Latin Extended-A stay.
                self.single_blocks.append((0x00C0, 0x017F))
            elif language in _CYRILLIC_LANGUAGES:
                letters |= set(_CYRILLIC_LANGUAGES[language])
                self.single_blocks.append((0x0400, 0x04FF))
            elif language == "el":
                letters |= set(_GREEK)
                self.single_blocks.append((0x0370, 0x03FF))
            elif language in _BLOCK_LANGUAGES:
                self.blocks += _BLOCK_LANGUAGES[language]
            else:
                raise InputError(f"language {language!r} is unknown; known: {', '.join(known_languages())}")
        self.letters = frozenset(letters)
        # Any text quotes Latin letters now and then; alone they cost 26 rows.
        self.single = self.letters | set(_LATIN)
        self._known: dict[str, bool] = {}

    def _has(self, character: str) -> bool:
        known = self._known.get(character)
        if known is None:
            known = self._known[character] = self._look_up(character)
        return known

    def _look_up(self, character: str) -> bool:
        code = ord(character)
        if any(low <= code <= high for low, high in self.blocks):
            # Latin-1 letters such as ª belong to no alphabet and are harmless.
            return not character.isalpha() or code > 0xFF or character.lower() in self.letters
        parts = [part for part in character.lower() if not unicodedata.combining(part)]
        return bool(parts) and all(part in self.letters for part in parts)

    def writes(self, text: str) -> bool:
        """Whether every character of `text` belongs to the languages; a single character is accepted more easily."""
        if len(text) == 1:
            code = ord(text)
            if text.lower() in self.single or any(low <= code <= high for low, high in self.single_blocks):
                return True
        return all(self._has(character) for character in text)

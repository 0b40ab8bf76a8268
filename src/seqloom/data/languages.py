"""Languages of texts: their names, and which one a text is in. Codes are BCP 47; `en-ipa` is known by its `en`.

Texts are told apart by py3langid, which the extra `serve` brings; nothing else here needs it.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Collection
from functools import cached_property
from typing import Protocol

from seqloom.errors import SeqloomError

NAMES = {
    "ar": "Arabic", "bg": "Bulgarian", "bn": "Bengali", "ca": "Catalan", "cs": "Czech", "da": "Danish",
    "de": "German", "el": "Greek", "en": "English", "eo": "Esperanto", "es": "Spanish", "et": "Estonian",
    "eu": "Basque", "fa": "Persian", "fi": "Finnish", "fr": "French", "ga": "Irish", "gl": "Galician",
    "he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "hy": "Armenian", "id": "Indonesian",
    "is": "Icelandic", "it": "Italian", "ja": "Japanese", "ka": "Georgian", "ko": "Korean", "la": "Latin",
    "lt": "Lithuanian", "lv": "Latvian", "mk": "Macedonian", "ms": "Malay", "mt": "Maltese", "nb": "Norwegian",
    "nl": "Dutch", "no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian",
    "sk": "Slovak", "sl": "Slovenian", "sq": "Albanian", "sr": "Serbian", "sv": "Swedish", "sw": "Swahili",
    "ta": "Tamil", "th": "Thai", "tl": "Tagalog", "tr": "Turkish", "uk": "Ukrainian", "ur": "Urdu",
    "vi": "Vietnamese", "zh": "Chinese",
}  # fmt: skip


def base(code: str) -> str:
    """`en` of `en-ipa`."""
    return code.partition("-")[0].lower()


def name_of(code: str) -> str:
    """`English`, `English (en-ipa)`; a code that is not known is its own name."""
    known = NAMES.get(base(code))
    return code if known is None else known if known and base(code) == code else f"{known} ({code})"


class _Identifier(Protocol):
    def rank(self, text: str) -> list[tuple[str, float]]: ...


class Detector:
    """Says which of all languages it knows a text is in, or which of some."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @cached_property
    def _identifier(self) -> _Identifier:
        """E_EXTRA where py3langid is not installed."""
        try:
            langid = importlib.import_module("py3langid.langid")
        except ImportError as error:
            what = f"telling languages apart needs the package py3langid ({error})"
            raise SeqloomError("E_EXTRA", what, fix="pip install 'seqloom[serve]'") from None
        found: _Identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
        return found

    def ranked(self, text: str, among: Collection[str] = ()) -> list[tuple[str, float]]:
        """(code, confidence from 0 to 100), the likeliest first; `among` codes whose base is known, or all."""
        with self._lock:
            found = self._identifier.rank(text)
        codes = {base(code): code for code in reversed(list(among))}
        kept = [(codes.get(code, code), share) for code, share in found if not codes or code in codes]
        total = sum(share for _, share in kept) or 1.0
        return [(code, round(100 * float(share) / total, 1)) for code, share in kept]

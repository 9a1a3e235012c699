"""Repairs of one JSON value's text: what profilers and killed jobs really write.

`mend` turns the bytes of one broken value into candidates that a strict decoder may accept, mildest first. It changes
only what JSON forbids; a value that still does not decode is the caller's to drop and count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_CONTROL: Final = re.compile(r"[\x00-\x1f]")
_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_BARE: Final = re.compile(rf"({_STRING})|-?\b(?:nan|inf(?:inity)?)\b(?:\([a-z]*\))?", re.IGNORECASE)
# Commas too many: behind an opening bracket, before a closing one, or several for one.
_COMMAS: Final = re.compile(rf"({_STRING})|([\[{{])(?:\s*,)+|,[\s,]*(?=[\]}}])|(,)[\s,]*,")
_LITERAL: Final = re.compile(_STRING)
_ESCAPE: Final = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')
_PAIR: Final = re.compile(
    r"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
)
# A closing quote is one that a colon, a bracket or a comma and the next value follow.
_LOOSE_STRING: Final = re.compile(r'"(.*?)"(?=\s*(?::|[\]}]|,\s*["\[{\dtfn-]|$))', re.DOTALL)


def mend(text: bytes) -> Iterator[bytes]:
    """Repaired versions of `text`, mildest first."""
    readable = _CONTROL.sub(" ", text.decode("utf-8", errors="replace"))
    yield _strict(readable).encode()
    yield _strict(_requoted(readable)).encode()


def _strict(text: str) -> str:
    """Invalid escapes, lone surrogates, NaN and infinities, and superfluous commas put right."""
    if "\\" in text:
        text = _LITERAL.sub(lambda found: _escaped(found[0]), text)
    text = _BARE.sub(lambda found: found[1] or "null", text)
    return _COMMAS.sub(lambda found: found[1] or found[2] or found[3] or "", text)


def _escaped(literal: str) -> str:
    """A string literal with valid escapes. One bad escape means that the writer escaped nothing: `C:\\foo\\qux`."""
    if any(found[0] == "\\" for found in _ESCAPE.finditer(literal)):
        literal = re.sub(r'\\(?!["\\])', r"\\\\", literal)
    return _PAIR.sub(lambda found: found[1] or "\\ufffd", literal)


def _requoted(text: str) -> str:
    """Quotes inside strings escaped, strings being taken to end where JSON's punctuation goes on."""

    def escape(found: re.Match[str]) -> str:
        return '"' + re.sub(r'(?<!\\)((?:\\\\)*)"', r'\1\\"', found[1]) + '"'

    return _LOOSE_STRING.sub(escape, text)

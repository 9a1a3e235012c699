"""The report as one HTML file that needs nothing else: no network, no server, no second file.

Every value goes through Jinja's autoescape or, for scripts, through `script_json`. A content security policy admits only
the scripts written here, by hash, so that even a name that slipped through would not run.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
import zlib
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from advisor import registry
from advisor.model import NumberKind
from advisor.report import sections
from advisor.report.content import RunContent
from advisor.report.evidence import fix_words, without_packages
from advisor.report.sections import Body, Section
from advisor.units import format_bytes, format_count, format_ns, format_number, format_ratio, format_speedup

_SCRIPTS: Final = ("page.js", "timeline_data.js", "timeline_draw.js", "timeline_input.js", "plots.js")
_NUMBER_UNIT: Final = re.compile(r"(?<=\d) (?=(?:s|ms|µs|ns|%|B|KiB|MiB|GiB)(?!\w))")
_KIND_HINTS: Final = {
    "measured": "clocked without a profiler",
    "calibrated": "from the trace, scaled to the unprofiled clock",
    "profiled": "as the trace has it; the profiler may have inflated it",
    "estimated": "predicted by a model",
    "verified": "captured, replayed, timed and compared with the eager run",
}


def render(content: RunContent) -> str:
    """The whole page for one run. Pure: the same content gives the same bytes."""
    built = [(section, section.build(content)) for section in all_sections()]
    scripts = [Markup(_template_text(name)) for name in _SCRIPTS]
    plotly = _plotly() if any(section.id == "launches" and body.data for section, body in built) else None
    hashes = [_csp_hash(script) for script in scripts] + ([plotly.csp_hash] if plotly else [])
    return (
        _environment()
        .get_template("page.html")
        .render(
            content=content,
            sections=built,
            data={section.id: script_json(body.data) for section, body in built if body.data is not None},
            style=Markup(_template_text("style.css")),
            scripts=scripts,
            script_hashes=" ".join(hashes),
            plotly=plotly,
            kind_hints=_KIND_HINTS,
            kinds=[kind.value for kind in NumberKind],
        )
    )


def all_sections() -> tuple[Section, ...]:
    """Every section of the package, in page order."""
    return tuple(sorted(registry.members(sections, "SECTION", Section), key=lambda section: section.order))


def script_json(value: Any) -> Markup:
    """`value` as JSON that cannot end the script element it sits in, nor open a comment or a line in it."""
    text = msgspec.json.encode(value).decode()
    # In JSON these characters occur only inside strings, where the escape means the same character.
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


class _Plotly(msgspec.Struct, frozen=True):
    """plotly.js, deflated (4.6 MB become 1.9), and the hash under which the policy lets it run once inflated."""

    deflated: str
    csp_hash: str


@cache
def _plotly() -> _Plotly:
    # Found without importing it: the script is all that is needed of the package.
    spec = importlib.util.find_spec("plotly")
    folders = spec.submodule_search_locations if spec is not None else None
    if not folders:
        raise ModuleNotFoundError("plotly")
    source = Path(folders[0], "package_data", "plotly.min.js").read_text(encoding="utf-8")
    packed = zlib.compress(source.encode(), 9)
    return _Plotly(base64.b64encode(packed).decode(), _csp_hash(source))


def _csp_hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _template_text(name: str) -> str:
    return resources.files("advisor.report").joinpath("templates", name).read_text(encoding="utf-8")


def _ticks(text: str) -> Markup:
    """Text whose `quoted` parts become code, everything escaped."""
    text = _NUMBER_UNIT.sub("\u00a0", str(text))  # a number keeps its unit on its line
    parts = text.split("`")
    if len(parts) % 2 == 0:  # a lone backtick is a character like any other
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if index % 2 else part for index, part in enumerate(parts)
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("advisor.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        ns=lambda ns: format_ns(ns).replace(" ", "\u00a0"),
        bytes=lambda size: format_bytes(size).replace(" ", "\u00a0"),
        count=format_count,
        percent=lambda ratio: format_ratio(ratio).replace(" ", "\u00a0"),
        speedup=format_speedup,
        number=format_number,
        words=lambda text: str(text).replace("_", " "),
        ticks=_ticks,
        paths=without_packages,
        fix_words=fix_words,
    )
    return environment


__all__ = ["Body", "all_sections", "render", "script_json"]

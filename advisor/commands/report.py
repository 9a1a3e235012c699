"""`cgadvisor report RUN`: a run folder rendered again, from its JSON files alone."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.bundle import REPORT_NAME, write_atomically
from advisor.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from advisor.report.content import RunContent

FORMATS = ("html", "md", "json", "terminal")


@dataclass(frozen=True)
class Options:
    """The command line, typed."""

    run: Path
    format: str
    out: Path | None
    perfetto: Path | None
    open_report: bool


def run(options: Options) -> int:
    """Render and write or print. Returns the exit code; raises AdvisorError."""
    from advisor.report.content import RunContent

    if options.format not in FORMATS:
        raise UsageError(f"--format {options.format}: one of {', '.join(FORMATS)}")
    if options.open_report and options.format != "html":
        raise UsageError("--open shows the HTML report; leave --format out or say html")
    content = RunContent.load(options.run)
    if options.perfetto is not None:
        from advisor.report import perfetto

        write_atomically(options.perfetto, perfetto.render(content))
        print(f"{options.perfetto}: the cut step; open it in https://ui.perfetto.dev", file=sys.stderr)
    text = render(content, options.format)
    target = options.out or (options.run / REPORT_NAME if options.format == "html" else None)
    if target is None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        return EXIT_OK
    write_atomically(target, text.encode())
    print(target)
    if options.open_report:
        import webbrowser

        webbrowser.open(target.resolve().as_uri())
    return EXIT_OK


def render(content: RunContent, format_name: str) -> str:
    """The content in one of FORMATS."""
    if format_name == "html":
        from advisor.report import html

        return html.render(content)
    if format_name == "md":
        from advisor.report import markdown

        return markdown.render(content)
    if format_name == "json":
        return as_json(content)
    from advisor.report import terminal

    return terminal.render(content)


def as_json(content: RunContent) -> str:
    """Every artefact of the run in one object, and the verdict with the verification in it."""
    import msgspec

    parts = {
        "verdict": content.verdict,
        "findings": content.analysis,
        "manifest": content.manifest,
        "clock": content.clock,
        "calibration": content.calibration,
        "verification": content.verification,
    }
    present = {name: part for name, part in parts.items() if part is not None}
    return msgspec.json.format(msgspec.json.encode(present), indent=1).decode()

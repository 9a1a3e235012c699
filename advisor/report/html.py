"""The report as one self-contained HTML file."""

from __future__ import annotations

from advisor.report.content import RunContent


def render(content: RunContent) -> str:
    """The report page."""
    import html

    from advisor.report import terminal

    return f"<!doctype html><meta charset=utf-8><title>cgadvisor</title><pre>{html.escape(terminal.render(content))}</pre>\n"

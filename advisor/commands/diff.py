"""`cgadvisor diff A B`: two runs side by side."""

from __future__ import annotations

import sys
from pathlib import Path

from advisor.bundle import Bundle, write_atomically
from advisor.errors import EXIT_OK, UsageError

FORMATS = ("terminal", "md", "json")


def run(a: Path, b: Path, format_name: str, out: Path | None) -> int:
    """Compare and print. Returns the exit code; raises AdvisorError."""
    from advisor.diffing import Side, compare_runs

    if format_name not in FORMATS:
        raise UsageError(f"--format {format_name}: one of {', '.join(FORMATS)}")
    diff = compare_runs(Side.load(Bundle.open(a)), Side.load(Bundle.open(b)))
    if format_name == "json":
        import msgspec

        text = msgspec.json.format(msgspec.json.encode(diff), indent=1).decode()
    else:
        from advisor.report import diff as render

        text = render.terminal(diff) if format_name == "terminal" else render.markdown(diff)
    text = text if text.endswith("\n") else text + "\n"
    if out is not None:
        write_atomically(out, text.encode())
        print(out)
    else:
        sys.stdout.write(text)
    return EXIT_OK

"""Writes the pictures of docs/images from real runs: `python tests/screenshots.py [RUN_FOLDER | REPORT.html ...]`.

Without arguments it analyses the recordings that come with the package. Each gives its first screen at 1440 and 380 pixels
and its timeline; the first one its dark first screen too. Look at them before committing: no test can.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from browser import Browser, Page

from advisor import load
from advisor.advise import analyze, with_gaps
from advisor.report import html
from advisor.report.content import RunContent

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
RECORDINGS = ROOT / "advisor" / "data"


def main(sources: list[Path]) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with Browser() as browser, tempfile.TemporaryDirectory() as scratch:
        for index, source in enumerate(sources or sorted(RECORDINGS.glob("*.json.gz"))):
            name = source.parent.name if source.name == "report.html" else source.name.split(".")[0]
            path = _page(source, Path(scratch) / f"{name}.html")
            _shoot(browser, path, name, dark=index == 0)
            print(name)


def _page(source: Path, path: Path) -> Path:
    """The report of a run folder, a recording, or the file itself when it is a report already."""
    if source.suffix == ".html":
        return source
    content = RunContent.load(source) if source.is_dir() else RunContent(analyze(with_gaps(load(source))))
    path.write_text(html.render(content), encoding="utf-8")
    return path


def _shoot(browser: Browser, path: Path, name: str, *, dark: bool) -> None:
    for width, height, is_dark in ((1440, 900, False), (380, 800, False), (1440, 900, True)):
        if is_dark and not dark:
            continue
        page = browser.page(path, width=width, height=height, dark=is_dark)
        page.screenshot(IMAGES / f"{name}-{'dark' if is_dark else width}.png", full=False)
        page.close()
    page = browser.page(path, width=1440, height=900)
    _section(page, "timeline", IMAGES / f"{name}-timeline.png")
    page.close()


def _section(page: Page, section: str, path: Path) -> None:
    page.run(f"document.getElementById({section!r}).scrollIntoView({{ behavior: 'instant' }})")
    page.screenshot(path, full=False)


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])

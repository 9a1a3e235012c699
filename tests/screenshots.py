"""Writes the pictures of docs/images from real runs: `python tests/screenshots.py [RUN_FOLDER ...]`.

Without arguments it analyses the recordings that come with the package. Each run gives its first screen at 1440 and 380
pixels and its timeline; the first run its dark first screen too. Look at them before committing: no test can.
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


def main(folders: list[Path]) -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    runs = [(folder.name, RunContent.load(folder)) for folder in folders] or [
        (path.name.removesuffix(".json.gz"), RunContent(analyze(with_gaps(load(path)))))
        for path in sorted(RECORDINGS.glob("*.json.gz"))
    ]
    with Browser() as browser, tempfile.TemporaryDirectory() as scratch:
        for index, (name, content) in enumerate(runs):
            path = Path(scratch) / f"{name}.html"
            path.write_text(html.render(content), encoding="utf-8")
            for width, height in ((1440, 900), (380, 800)):
                page = browser.page(path, width=width, height=height)
                page.screenshot(IMAGES / f"{name}-{width}.png", full=False)
                page.close()
            page = browser.page(path, width=1440, height=900)
            _section(page, "timeline", IMAGES / f"{name}-timeline.png")
            page.close()
            if index == 0:
                page = browser.page(path, width=1440, height=900, dark=True)
                page.screenshot(IMAGES / f"{name}-dark.png", full=False)
                page.close()
            print(name)


def _section(page: Page, section: str, path: Path) -> None:
    page.run(f"document.getElementById({section!r}).scrollIntoView({{ behavior: 'instant' }})")
    page.screenshot(path, full=False)


if __name__ == "__main__":
    main([Path(argument) for argument in sys.argv[1:]])

"""docs/blockers.md names every blocker, hazard and fix, and no other."""

import re
from pathlib import Path

from advisor.verify.hazards import HAZARDS
from advisor.workload.diagnose import KINDS
from advisor.workload.whatif import TITLES

TEXT = (Path(__file__).parents[1] / "docs" / "blockers.md").read_text(encoding="utf-8")


def test_every_id_has_its_row_and_every_row_its_id() -> None:
    rows = set(re.findall(r"^\| `([a-z0-9-]+)` \|", TEXT, re.MULTILINE))
    assert rows == KINDS.keys() | HAZARDS.keys() | TITLES.keys()

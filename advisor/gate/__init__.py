"""`cgadvisor gate`: did this change make things worse, and can these two runs be compared at all?

snapshot.py  what one side is: named counts, blocking lines, regions, environment, raw times
counts.py    an analysis and its run folder -> snapshot      baseline.py  snapshot <-> a file in the repository
judge.py     snapshots and configuration -> verdict          verdict.py   the frozen values
outputs/     the verdict as text, Markdown, JUnit, SARIF, GitHub annotations
"""

from advisor.gate.judge import judge
from advisor.gate.sides import is_trace, load_side
from advisor.gate.snapshot import Snapshot
from advisor.gate.verdict import GateCheck, GateVerdict, Status

__all__ = ["GateCheck", "GateVerdict", "Snapshot", "Status", "is_trace", "judge", "load_side"]

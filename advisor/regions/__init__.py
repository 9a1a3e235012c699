"""Named pieces of the program, found in a timeline, as plain values; past here only values, no frames.

`find(timeline, rank, device)` names the step, then every range, module, statement or repeated kernel sequence that
launched work, with its figures. Items belong to a region by their launch; a gap belongs to the item that ends it.
"""

from advisor.regions.find import Found, find
from advisor.regions.rows import FoundRegion, Occurrences, StepWindows
from advisor.regions.span import span_region

__all__ = ["Found", "FoundRegion", "Occurrences", "StepWindows", "find", "span_region"]

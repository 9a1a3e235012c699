"""Some work runs in graph replays and some does not: what escaped is where the remaining idle time is."""

from advisor.model import Finding, Severity
from advisor.rules import Facts, Rule
from advisor.units import format_counted, format_ratio


def check(facts: Facts) -> Finding | None:
    graphs = facts.device.graphs
    if not 0.0 < graphs.item_ratio < 0.95 or not graphs.launch_count:
        return None
    outside = facts.device.item_count - graphs.item_count
    replays = format_counted(graphs.launch_count, "graph replay")
    return Finding(
        id="partly-graphed",
        severity=Severity.INFO,
        title=f"{format_ratio(graphs.item_ratio)} of the GPU items run inside {replays}",
        detail=f"{format_counted(outside, 'item')} launched one by one, outside of any graph.",
        fix="Widen the graphs over the eager work between them, where nothing blocks it.",
    )


RULE = Rule("partly-graphed", check)

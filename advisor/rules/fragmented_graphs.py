"""Many small graphs: each replay costs a launch and a gap, so graphs of a few nodes save little."""

from advisor.model import Finding, Severity
from advisor.rules import Facts, Rule
from advisor.units import format_count


def check(facts: Facts) -> Finding | None:
    graphs = facts.device.graphs
    if graphs.launch_count < 10 or graphs.opaque_ns or graphs.item_count / graphs.launch_count >= 8:
        return None
    each = graphs.item_count / graphs.launch_count
    return Finding(
        id="fragmented-graphs",
        severity=Severity.WARNING,
        title=f"{format_count(graphs.launch_count)} graph replays of {each:.1f} items on average",
        detail="A replay of so few items saves little over launching them one by one.",
        fix="Remove the graph breaks between them (TORCH_LOGS=graph_breaks) or capture a wider region.",
    )


RULE = Rule("fragmented-graphs", check)

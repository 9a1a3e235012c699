"""Work on several streams: a capture takes in other streams only if they are forked from and joined to the captured one."""

from advisor.model import Finding, Severity
from advisor.rules import Facts, Rule


def check(facts: Facts) -> Finding | None:
    if facts.device.stream_count < 2 or facts.step is None:
        return None
    return Finding(
        id="many-streams",
        severity=Severity.INFO,
        title=f"GPU items on {facts.device.stream_count} streams",
        detail="Streams that are not forked from the capturing stream by an event are missing from the graph, silently.",
        fix="Let side streams wait for the current stream first (side.wait_stream(current)) and join them before the end.",
    )


RULE = Rule("many-streams", check)

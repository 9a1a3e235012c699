"""The profiler slowed the program down: idle time read from its trace overstates the gain."""

from advisor.model import Finding, Severity
from advisor.rules import Facts, Rule


def check(facts: Facts) -> Finding | None:
    step = facts.step
    if step is None or step.inflation_ratio is None or step.inflation_ratio < 1.2:
        return None
    return Finding(
        id="profiler-inflation",
        severity=Severity.INFO,
        title=f"Under the profiler a step took {step.inflation_ratio:.2f}× as long",
        detail="Idle times and gains are reported for the unprofiled run: CPU time in the trace was deflated by this factor.",
    )


RULE = Rule("profiler-inflation", check)

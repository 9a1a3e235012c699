"""The plain mode: the script under the tool's process, but untouched. The reference the others are compared with."""

from __future__ import annotations

from advisor.workload import loader
from advisor.workload.job import Job


def run(job: Job) -> loader.Outcome:
    """Run the script to its end; no instrumentation, no early stop."""
    return loader.execute(job)

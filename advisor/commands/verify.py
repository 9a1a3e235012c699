"""`cgadvisor verify RUN`: capture the run's regions, replay them, say what was gained and whether the results are equal."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from advisor.bundle import Bundle
from advisor.commands.predict import Predictor
from advisor.errors import EXIT_OK
from advisor.model import Attempt, Outcome, Verification
from advisor.units import format_bytes, format_ns
from advisor.verify import Options as VerifyOptions
from advisor.verify import run as verify
from advisor.verify.search import Limits
from advisor.workload import environment


@dataclass(frozen=True)
class Options:
    """The command's options. Times in seconds."""

    folder: Path
    regions: tuple[str, ...] = ()
    what_if: bool = True
    max_attempts: int = 6
    budget_s: float = 60.0
    timeout_s: float = 120.0
    strategies: tuple[str, ...] = ()
    json: bool = False


def run(options: Options) -> int:
    """Verify and print. Returns the exit code; raises AdvisorError, among them GpuRequired where there is no GPU."""
    bundle = Bundle.open(options.folder)
    environment.require_torch()
    limits = Limits(
        budget_s=options.budget_s,
        max_attempts=options.max_attempts,
        timeout_s=options.timeout_s,
        what_if=options.what_if,
    )
    tell = _tell if sys.stderr.isatty() else lambda text: None
    predictor = Predictor(bundle)
    found = verify(
        bundle,
        VerifyOptions(
            regions=options.regions,
            limits=limits,
            strategies=options.strategies,
            tell=tell,
            before=predictor,
        ),
    )
    found = predictor.with_traced_items(found)
    if options.json:
        print(msgspec.json.encode(found).decode())
    else:
        print(text(found))
    return EXIT_OK


def _tell(text: str) -> None:
    print(f"verify: measuring {text}", file=sys.stderr, flush=True)


def text(found: Verification) -> str:
    """The verification as a person reads it: one block per attempt, what is left, and where the time went."""
    lines = [line for attempt in found.attempts for line in _attempt(attempt)]
    if found.untried:
        lines.append(f"not attempted: {', '.join(found.untried)}")
    lines += list(found.notes)
    lines.append(f"{len(found.attempts)} attempts in {format_ns(found.wall_ns)}")
    return "\n".join(lines)


def _attempt(attempt: Attempt) -> list[str]:
    fixed = f", with {'; '.join(fix.title for fix in attempt.fixes)}" if attempt.fixes else ", as written"
    lines = [f"{attempt.region_label}{fixed}: {attempt.outcome.value.replace('_', ' ')}", f"  {attempt.message}"]
    if attempt.outcome in (Outcome.VERIFIED, Outcome.NOT_FASTER):
        lines.append(f"  {_facts(attempt)}")
    if attempt.blocker is not None:
        lines.append(f"  {attempt.blocker.evidence}")
        lines.append(f"  fix: {attempt.blocker.fix}")
    lines += [f"  {line}" for fix in attempt.fixes for line in fix.diff.splitlines()[2:]]
    return lines


def _facts(attempt: Attempt) -> str:
    parts = []
    if attempt.node_count is not None:
        traced = f" ({attempt.traced_item_count} traced)" if attempt.traced_item_count else ""
        parts.append(f"graph of {attempt.node_count} nodes{traced}")
    if attempt.pool_bytes is not None:
        parts.append(f"{format_bytes(attempt.pool_bytes)} pool")
    if attempt.capture_ns is not None:
        parts.append(f"capture {format_ns(attempt.capture_ns + (attempt.instantiate_ns or 0))}")
    if attempt.break_even_replays is not None:
        parts.append(f"pays back after {attempt.break_even_replays} steps")
    if attempt.fallback_count:
        parts.append(f"{attempt.fallback_count} fallbacks to eager ({attempt.signature_count} signatures)")
    return ", ".join(parts)

"""`cgadvisor explain RUN --region R`: an estimate with every term, so that a person can check it by hand."""

from __future__ import annotations

from difflib import get_close_matches
from fnmatch import fnmatch
from pathlib import Path

from advisor.bundle import Bundle
from advisor.errors import EXIT_OK, BundleError, UsageError
from advisor.model import Analysis, Estimate, NumberKind, Region
from advisor.units import format_count, format_ns, format_ratio, format_speedup


def run(folder: Path, region: str) -> int:
    """Print the estimates of all regions that `region` (id, label or glob; "" for the step) names."""
    analysis = Bundle.open(folder).load(Analysis)
    if not analysis.estimates:
        raise BundleError(f"{folder}: no estimates in this run: {_why_none(analysis)}")
    print("\n\n".join(render(analysis, one) for one in chosen(analysis, region)))
    return EXIT_OK


def chosen(analysis: Analysis, wanted: str) -> list[Estimate]:
    """The estimates named by an id, a label or a glob over labels. Raises UsageError with near names when none is."""
    if not wanted:
        return [analysis.estimates[0]]
    names = {one.region_id: analysis.region(one.region_id).label for one in analysis.estimates}
    exact = [one for one in analysis.estimates if wanted in (one.region_id, names[one.region_id])]
    found = exact or [one for one in analysis.estimates if fnmatch(names[one.region_id], wanted)]
    silent = next((one for one in analysis.regions if wanted in (one.id, one.label)), None)
    if not found and silent is not None:
        raise UsageError(f"--region {wanted}: no estimate of it: {_why_silent(silent)}")
    if not found:
        near = get_close_matches(wanted, [*names.values(), *names], 3) or list(names.values())[:5]
        raise UsageError(f"--region {wanted}: no such region; there are {', '.join(near)}")
    return found


def render(analysis: Analysis, estimate: Estimate) -> str:
    """Before, the terms, after, the interval by source, one-off costs and assumptions, as text."""
    region = analysis.region(estimate.region_id)
    return "\n".join(
        [*_head(region, estimate), *_terms(estimate), *_bounds(estimate), *_once(estimate), *_words(estimate)]
    )


def _why_silent(region: Region) -> str:
    if region.occurrences_per_step <= 0:
        return "it does not run inside the steps"
    return "the recording does not tell"


def _why_none(analysis: Analysis) -> str:
    if analysis.step is None:
        return "no step was found; name one with `cgadvisor profile --step-at`"
    notes = [note.message for note in analysis.quality if "estimate" in note.forbids]
    return notes[0] if notes else "the step has no launches on record"


def _head(region: Region, estimate: Estimate) -> list[str]:
    clock = {
        NumberKind.CALIBRATED: "clocked without a profiler",
        NumberKind.PROFILED: "as traced, profiler included",
    }.get(estimate.kind, "estimated")
    return [
        f"{region.label} ({region.kind.value}, {format_count(region.item_count)} items, "
        f"{format_count(region.occurrences_per_step)} a step)",
        f"  {'step now':<56}{format_ns(estimate.before_ns):>12}  {clock}",
    ]


def _terms(estimate: Estimate) -> list[str]:
    rows = [f"    {term.label:<54}{_signed(-term.ns):>12}  {term.note}".rstrip() for term in estimate.terms]
    speedup = format_speedup(estimate.speedup_ratio)
    return [*rows, f"  {'step with the graph':<56}{format_ns(estimate.after_ns):>12}  {speedup}, estimated"]


def _bounds(estimate: Estimate) -> list[str]:
    low, high = estimate.before_ns - estimate.saved_high_ns, estimate.before_ns - estimate.saved_low_ns
    rows = [f"  {'between':<56}{format_ns(low):>12}  and {format_ns(high)}"]
    rows += [f"    ± {width.label:<52}{format_ns(width.ns):>12}" for width in estimate.interval]
    if estimate.binds_next:
        limit = {
            "gpu": "the GPU's own work",
            "cpu": "the CPU",
            "sync": "synchronisations",
            "input": "waiting for input",
        }
        rows.append(f"  {'then limited by':<56}{limit.get(estimate.binds_next, estimate.binds_next)}")
    if estimate.without_syncs_ns is not None:
        rows.append(f"  {'with the synchronisations inside gone':<56}{format_ns(estimate.without_syncs_ns):>12}")
    return rows


def _once(estimate: Estimate) -> list[str]:
    rows = [f"  {'once: warm-up, capture, instantiate':<56}{format_ns(estimate.one_off_ns):>12}"]
    if estimate.break_even_replays is not None:
        rows[0] += f"  earned back after {format_count(estimate.break_even_replays)} replays"
    if estimate.pool_bytes is not None:
        from advisor.units import format_bytes

        rows.append(f"  {'memory pool':<56}{format_bytes(estimate.pool_bytes):>12}")
    share = estimate.saved_ns / estimate.before_ns if estimate.before_ns else 0.0
    rows.append(f"  {'saved':<56}{format_ratio(max(share, 0.0)):>12}  of the step")
    return rows


def _words(estimate: Estimate) -> list[str]:
    return ["  assuming that", *(f"    - {one}" for one in estimate.assumptions)] if estimate.assumptions else []


def _signed(ns: int) -> str:
    return f"{'+' if ns > 0 else '-' if ns < 0 else ''}{format_ns(abs(ns))}"

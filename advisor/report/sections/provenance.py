"""What ran, on what, with which limits, and everything that was not run."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.model import Calibration, Clock, Manifest, Verification
from advisor.report.content import RunContent
from advisor.report.figures import median_ns
from advisor.report.sections import Body, Section
from advisor.units import format_bytes, format_count, format_ns, format_ratio


@dataclass(frozen=True)
class Group:
    """A heading with labelled values; without values, `missing` says what adds them."""

    title: str
    rows: tuple[tuple[str, str], ...]
    missing: str = ""


def _build(content: RunContent) -> Body:
    groups = [
        _trace(content),
        _run(content.manifest),
        _clock(content.clock),
        _calibration(content.calibration),
        _verification(content.verification),
    ]
    return Body({"groups": groups, "not_run": _not_run(content)})


def _kept(*rows: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((label, value) for label, value in rows if value)


def _trace(content: RunContent) -> Group:
    trace = content.analysis.trace
    return Group(
        "Recording",
        _kept(
            ("files", ", ".join(trace.files)),
            ("source", " ".join(part for part in (trace.source, trace.format_detail) if part)),
            ("GPU", ", ".join(dict.fromkeys(trace.gpu_names))),
            ("torch", trace.torch_version),
            ("CUDA", trace.cuda_version),
            ("ranks", format_count(trace.rank_count)),
            ("events read", format_count(trace.event_count) if trace.event_count else ""),
            ("analysed by", f"cgadvisor {content.analysis.tool_version}".strip()),
        ),
    )


def _run(manifest: Manifest | None) -> Group:
    if manifest is None:
        return Group(
            "Run", (), "The recording was made elsewhere: `cgadvisor profile script.py` records command and versions."
        )
    return Group(
        "Run",
        _kept(
            ("command", " ".join(manifest.command)),
            ("script", manifest.script),
            ("at", manifest.created_at),
            ("GPU", ", ".join(dict.fromkeys(manifest.gpu_names))),
            ("driver", manifest.driver_version),
            ("GPU clock", f"{manifest.gpu_clock_mhz} MHz" if manifest.gpu_clock_mhz else ""),
            ("CUDA", manifest.cuda_version),
            ("torch", manifest.torch_version),
            ("Python", manifest.python_version),
            ("CPUs", format_count(manifest.cpu_count) if manifest.cpu_count else ""),
            ("passes", ", ".join(manifest.passes)),
            ("options", _options(manifest)),
        ),
    )


def _options(manifest: Manifest) -> str:
    """Options that were given. A list of arguments is kept with unit separators between them."""
    given = {name: value.replace("\x1f", " ") for name, value in manifest.options.items() if value}
    return ", ".join(f"{name}={value}" for name, value in given.items())


def _clock(clock: Clock | None) -> Group:
    if clock is None:
        return Group(
            "Unprofiled clock", (), "None: times are the trace's. `cgadvisor profile script.py` clocks the script too."
        )
    return Group(
        "Unprofiled clock",
        _kept(
            ("step", f"{clock.step_label} ({clock.step_how})"),
            ("samples", f"{format_count(len(clock.host_step.samples_ns))} steps after {clock.warmup_count} of warm-up"),
            ("host", f"{format_ns(median_ns(clock.host_step))} median"),
            ("device", f"{format_ns(median_ns(clock.device_step))} median (CUDA events)" if clock.device_step else ""),
            ("one range costs", format_ns(clock.range_cost_ns) if clock.range_cost_ns else ""),
            ("peak memory", format_bytes(clock.peak_memory_bytes) if clock.peak_memory_bytes else ""),
        ),
    )


def _calibration(one: Calibration | None) -> Group:
    if one is None:
        return Group(
            "Machine constants",
            (),
            "None: estimates use documented defaults. `cgadvisor profile` measures this machine.",
        )
    return Group(
        "Machine constants",
        _kept(
            ("measured at", one.measured_at),
            ("launch, CPU", format_ns(one.launch_cpu_ns)),
            ("launch to start", format_ns(one.launch_to_start_ns)),
            ("gap between graph nodes", format_ns(one.node_gap_ns)),
            (
                "graph launch",
                f"{format_ns(one.graph_launch_cpu_ns)} + {format_ns(one.graph_launch_cpu_per_node_ns)} per node",
            ),
            ("copy", f"{format_ns(one.copy_fixed_ns)} + {format_ns(one.copy_per_byte_ns * (1 << 20))} per MiB"),
            ("instantiate", f"{format_ns(one.instantiate_per_node_ns)} per node"),
            ("profiler", f"{format_ns(one.profiler_per_op_ns)} per op"),
            ("fit residual", format_ratio(one.residual_ratio)),
        ),
    )


def _verification(one: Verification | None) -> Group:
    if one is None:
        return Group(
            "Verification", (), "None: no region was captured. `cgadvisor verify RUN` does, on a machine with the GPU."
        )
    return Group(
        "Verification",
        _kept(
            ("attempts", format_count(len(one.attempts))),
            ("time", f"{format_ns(one.wall_ns)}" + (f" of a budget of {format_ns(one.budget_ns)}" if one.budget_ns else "")),
            *((attempt.id, f"{attempt.region_label}, {attempt.outcome.value}, {format_ns(attempt.wall_ns)}"
               + (f", {attempt.log}" if attempt.log else "")) for attempt in one.attempts),
            *(("note", note) for note in one.notes),
        ),
    )  # fmt: skip


def _not_run(content: RunContent) -> list[str]:
    """Everything a reader could take for done and was not."""
    found = list(content.manifest.notes) if content.manifest else []
    if content.verification is not None:
        found += [f"not attempted: {text}" for text in content.verification.untried]
    for part, text in (
        (content.clock, "not clocked: no pass without the profiler"),
        (content.calibration, "not calibrated: machine constants are defaults"),
        (content.verification, "not verified: no region was captured"),
    ):
        found += [text] if part is None else []
    cut = content.analysis.timeline
    if cut is not None and cut.truncated_count:
        found.append(f"not drawn: {format_count(cut.truncated_count)} events of the step (the shortest CPU ranges)")
    others = len(content.analysis.devices) - 1
    if others > 0:
        found.append(
            f"not judged: {others} other devices of the recording; the verdict is about the one with most GPU items"
        )
    return found


SECTION = Section("provenance", 80, "How this was made", _build)

"""A run as values, for the renderers: an MLP trained with Adam on an H200, with the figures measured there.

114 items a step, 3188 µs clocked, 6477 µs traced, 324 µs busy. The events of the drawn step are generated from a seed.
"""

from __future__ import annotations

import random
from typing import Any

import msgspec

from advisor.model import (
    Analysis,
    Answer,
    Attempt,
    Blocker,
    Calibration,
    Clock,
    DeviceSummary,
    Distribution,
    Equality,
    EqualityOutcome,
    Estimate,
    Finding,
    Fix,
    GraphCoverage,
    Hazard,
    IdleByCause,
    KernelRow,
    Lane,
    LaunchStats,
    Layers,
    LineRow,
    Manifest,
    Measurement,
    NumberKind,
    Outcome,
    QualityNote,
    Region,
    RegionKind,
    Series,
    Severity,
    SourceSpan,
    Step,
    Term,
    TimelineCut,
    Timing,
    TraceInfo,
    Verdict,
    Verification,
)
from advisor.report.content import RunContent

US = 1_000
SOURCE = """import torch

model = build().cuda()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = []

for step, (x, y) in enumerate(loader):
    x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
    opt.zero_grad()
    out = model(x)
    loss = torch.nn.functional.mse_loss(out, y)
    loss.backward()
    opt.step()
    if step % 100 == 0:
        losses.append(loss.item())
"""
KERNELS = ("ampere_sgemm_32x32_sliced1x4_tn", "void at::native::vectorized_elementwise_kernel<4, at::native::relu>",
           "multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>", "void at::native::reduce_kernel<512, 1>")  # fmt: skip


def span(first: int, last: int | None = None) -> SourceSpan:
    return SourceSpan(file="train.py", first_line=first, last_line=last or first)


def samples(centre_us: float, count: int, seed: int, spread: float = 0.02) -> Measurement:
    """`count` samples around `centre_us` whose median is exactly it (an odd count)."""
    rng = random.Random(seed)
    half = [abs(rng.gauss(0, spread * centre_us)) for _ in range(count // 2)]
    values = [centre_us, *(centre_us - d for d in half), *(centre_us + 2 * d for d in half)]
    rng.shuffle(values)
    return Measurement(samples_ns=tuple(round(value * US) for value in values))


def region(**other: Any) -> Region:
    """The step: 6477 µs traced, 324 µs busy, the rest idle."""
    values: dict[str, Any] = {
        "id": "step", "label": "train.py:8-13", "kind": RegionKind.STEP, "rank": 0, "device": 0, "occurrence_count": 10,
        "occurrences_per_step": 1.0, "item_count": 114.0, "launch_count": 114.0, "busy_ns": 324 * US,
        "idle": IdleByCause(launch_ns=5890 * US, sync_ns=180 * US, device_ns=23 * US, profiler_ns=60 * US),
        "layers": Layers(language_ns=1720 * US, framework_ns=3310 * US, driver_ns=640 * US, submission_ns=220 * US),
        "step_share_ratio": 1.0, "cpu_ns": 6300 * US, "sync_count": 0.0, "h2d_count": 2.0,
        "signature": "9b1f03", "signature_match_ratio": 1.0, "signature_count": 1,
        "location": span(8, 13), "how": "hot loop train.py:7", "bytes_in": 16_384,
    }  # fmt: skip
    values.update(other)
    values.setdefault("extent_ns", values["busy_ns"] + values["idle"].total_ns)
    return Region(**values)


def part(line: int, share: float, items: int, label: str = "", **other: Any) -> Region:
    """A statement of the step with a share of its figures."""
    whole = region()
    values: dict[str, Any] = {
        "id": f"stmt:{line}", "label": label or f"train.py:{line}", "kind": RegionKind.STATEMENT, "item_count": float(items),
        "launch_count": float(items), "busy_ns": round(whole.busy_ns * share),
        "idle": IdleByCause(**{f"{c}_ns": round(v * share) for c, v in whole.idle.by_cause().items()}),
        "layers": Layers(**{f"{k}_ns": round(v * share) for k, v in whole.layers.by_layer().items()}),
        "step_share_ratio": share, "cpu_ns": round(whole.cpu_ns * share), "location": span(line), "parent_id": "step",
        "h2d_count": 0.0, "how": "statement",
    }  # fmt: skip
    return region(**{**values, **other})


PARTS = ((8, 0.05, 2), (9, 0.04, 0), (10, 0.21, 24), (11, 0.05, 3), (12, 0.31, 55), (13, 0.34, 30))


def estimate(region_id: str = "step", saved_us: int = 2745, **other: Any) -> Estimate:
    values: dict[str, Any] = {
        "region_id": region_id, "before_ns": 3188 * US, "saved_low_ns": round(saved_us * 0.94) * US, "saved_ns": saved_us * US,
        "saved_high_ns": round(saved_us * 1.04) * US,
        "terms": (
            Term(id="launch", label="launch-bound idle time removed", ns=(saved_us + 45) * US, kind=NumberKind.CALIBRATED),
            Term(id="nodes", label="gap between nodes, 114 × 0.31 µs", ns=-35 * US, kind=NumberKind.CALIBRATED),
            Term(id="graph", label="one graph launch", ns=-8 * US, kind=NumberKind.MEASURED, note="from the calibration"),
            Term(id="copies", label="staging 16.0 KiB of inputs", ns=-2 * US),
        ),
        "assumptions": ("the sequence of items is the same in every step", "idle time scales with the unprofiled clock"),
        "region_before_ns": 3188 * US, "region_after_ns": (3188 - saved_us) * US, "one_off_ns": 96_000 * US,
        "break_even_replays": 35, "pool_bytes": 34 << 20, "binds_next": "cpu", "kind": NumberKind.CALIBRATED,
    }  # fmt: skip
    return Estimate(**{**values, **other})


def distribution(low: float, high: float, count: int = 1140) -> Distribution:
    edges = tuple(low * (high / low) ** (i / 12) for i in range(13))
    counts = tuple(round(count * w / 100) for w in (1, 2, 4, 9, 16, 22, 19, 12, 8, 4, 2, 1))
    middle = (low * high) ** 0.5
    return Distribution(
        count=count, minimum=low, p05=low * 1.5, p25=middle * 0.7, median=middle, p75=middle * 1.5, p95=high * 0.6,
        maximum=high, mean=middle * 1.2, bin_edges=edges, bin_counts=counts,
    )  # fmt: skip


def device(**other: Any) -> DeviceSummary:
    whole = region()
    values: dict[str, Any] = {
        "rank": 0, "device": 0, "gpu_name": "NVIDIA H200", "start_ns": 0, "end_ns": 10 * whole.extent_ns,
        "busy_ns": 10 * whole.busy_ns,
        "idle": IdleByCause(**{f"{c}_ns": 10 * v for c, v in whole.idle.by_cause().items()}),
        "layers": Layers(**{f"{k}_ns": 10 * v for k, v in whole.layers.by_layer().items()}),
        "item_count": 1140, "kernel_count": 1120, "memcpy_count": 20, "memset_count": 0, "stream_count": 1,
        "gap_count": 1131, "long_gap_ns": 0,
        "launches": LaunchStats(
            launch_count=1140, item_count=1140, api=distribution(3e3, 60e3), latency=distribution(5e3, 90e3),
            queue=distribution(1e3, 30e3), issue=distribution(9e3, 400e3), ratio=distribution(2, 180),
            issue_to_busy_ratio=18.4, api_to_busy_ratio=2.2, calls_by_api={"cudaLaunchKernel": 1120, "cudaMemcpyAsync": 20},
        ),
        "graphs": GraphCoverage(), "gap_sizes": distribution(800, 300e3),
    }  # fmt: skip
    return DeviceSummary(**{**values, **other})


def cut(events: int = 0, seed: int = 3) -> TimelineCut:
    """One step: statements and ops on the main thread, backward on autograd's, launches, one stream, gaps.

    `events` > 0 repeats the step's body until the lanes together hold about that many events.
    """
    rng = random.Random(seed)
    names: list[str] = []

    def name(text: str) -> int:
        if text not in names:
            names.append(text)
        return names.index(text)

    cpu: list[tuple[int, int, int, int]] = []
    launches: list[tuple[int, int, int]] = []
    items: list[tuple[int, int, int, int]] = []
    now, gpu_free = 40 * US, 0
    ops = 114 if not events else events // 5
    statements = [line for line, _, count in PARTS for _ in range(max(1, round(count * ops / 114)))]
    opened: dict[int, int] = {}
    for index, line in enumerate(statements[:ops]):
        opened.setdefault(line, now)
        outer = now + 4 * US
        inner = outer + rng.randrange(6, 14) * US
        call = inner + rng.randrange(5, 20) * US
        call_end = call + rng.randrange(3, 8) * US
        end = call_end + rng.randrange(3, 9) * US
        cpu.append((outer, end - outer, name(f"aten::{('linear', 'relu', 'add', 'mul_', 'addcmul_')[index % 5]}"), 1))
        cpu.append((inner, end - 2 * US - inner, name(f"aten::{('addmm', 'clamp_min', 'sum')[index % 3]}"), 2))
        launches.append((call, call_end - call, name("cudaLaunchKernel")))
        start = max(gpu_free, call_end + 2 * US)
        length = rng.randrange(1_400, 4_300)
        items.append((start, length, name(KERNELS[index % len(KERNELS)]), len(launches) - 1))
        gpu_free = start + length
        now = end + rng.randrange(2, 22) * US
    ends = [*sorted(opened.values())[1:], now]
    for (line, begin), stop in zip(sorted(opened.items(), key=lambda pair: pair[1]), ends, strict=True):
        cpu.append((begin, stop - begin - 500, name(f"train.py:{line} [cga:stmt:{line}]"), 0))
    cpu.sort()
    gaps = []
    previous = 0
    for start, length, _, _ in items:
        if start > previous:
            gaps.append((previous, start - previous, name(rng.choices(("launch", "sync", "device"), (94, 3, 3))[0])))
        previous = start + length
    lanes = (
        Lane(id="cpu-1-100", label="CPU thread 100", kind="cpu", start_ns=tuple(c[0] for c in cpu),
             duration_ns=tuple(c[1] for c in cpu), name_ids=tuple(c[2] for c in cpu), depths=tuple(c[3] for c in cpu)),
        Lane(id="launch-1-100", label="CUDA API, thread 100", kind="launch", start_ns=tuple(c[0] for c in launches),
             duration_ns=tuple(c[1] for c in launches), name_ids=tuple(c[2] for c in launches)),
        Lane(id="stream-7", label="GPU stream 7", kind="stream", start_ns=tuple(c[0] for c in items),
             duration_ns=tuple(c[1] for c in items), name_ids=tuple(c[2] for c in items), links=tuple(c[3] for c in items)),
        Lane(id="gaps", label="GPU idle", kind="gap", start_ns=tuple(c[0] for c in gaps),
             duration_ns=tuple(c[1] for c in gaps), name_ids=tuple(c[2] for c in gaps)),
    )  # fmt: skip
    return TimelineCut(label="step 5 of 10, of median length", start_ns=0, end_ns=max(now, previous) + 20 * US, lanes=lanes,
                       names=tuple(names))  # fmt: skip


def lines() -> tuple[LineRow, ...]:
    text = SOURCE.splitlines()
    rows = []
    for line, share, count in PARTS:
        one = part(line, share, count)
        rows.append(
            LineRow(
                location=span(line), text=text[line - 1].strip(), depth=0, launch_count=float(count), item_count=float(count),
                busy_ns=one.busy_ns, idle=one.idle, layers=one.layers, sync_count=0.0, step_share_ratio=share,
                region_id=one.id,
            )
        )  # fmt: skip
    return tuple(rows)


def series(seed: int = 5) -> tuple[Series, ...]:
    rng = random.Random(seed)
    x = tuple(rng.lognormvariate(7.7, 0.5) for _ in range(400))
    y = tuple(rng.lognormvariate(10.2, 0.6) for _ in range(400))
    times = tuple(float(i * 16 * US) for i in range(400))
    return (
        Series(id="launch-to-execute", x=x, y=y, x_label="item ns", y_label="issue ns",
               names=tuple(KERNELS[i % 4] for i in range(400))),
        Series(id="queue-depth", x=times, y=tuple(float(rng.choice((0, 0, 0, 1, 1, 2))) for _ in times),
               x_label="ns from the step's first item", y_label="items launched and not started"),
    )  # fmt: skip


SYNC = Blocker(
    id="sync-item", title="a tensor value is read on the host", evidence="cudaStreamSynchronize in aten::item, 0.1 per step",
    fix="keep the value on the GPU and read it after the replay", location=span(15), count_per_step=0.1,
)  # fmt: skip


def analysis(**other: Any) -> Analysis:
    values: dict[str, Any] = {
        "tool_version": "0.1.0",
        "trace": TraceInfo(
            source="kineto", files=("mlp_adam_train_10steps.json.gz",), format_detail="schemaVersion 1, CUPTI 26",
            gpu_names=("NVIDIA H200",), cuda_version="13.0", torch_version="2.11.0+cu130", event_count=15_400,
        ),
        "quality": (
            QualityNote(id="profiler-overhead", severity=Severity.INFO, count=3, message="3 profiler flushes, 0.6 ms in all"),
        ),
        "devices": (device(),),
        "step": Step(
            id="step", label="train.py:8-13", how="hot loop train.py:7", count=10, traced=samples(6477, 9, 1),
            clocked=samples(3188, 101, 2), location=span(8, 13), inflation_ratio=6477 / 3188,
        ),
        "regions": (region(), *(part(line, share, count) for line, share, count in PARTS)),
        "estimates": (estimate(), estimate("stmt:10", 560), estimate("stmt:12", 830), estimate("stmt:13", 910)),
        "blockers": (SYNC,),
        "hazards": (),
        "findings": (
            Finding(id="optimizer-launches", severity=Severity.WARNING, title="The optimizer launches 30 kernels a step",
                    detail="Adam without fused=True issues one kernel per group of tensors.", fix="pass fused=True",
                    location=span(4), url="https://docs.pytorch.org/docs/stable/generated/torch.optim.Adam.html"),
            Finding(id="profiler-inflation", severity=Severity.INFO, title="Under the profiler a step took 2.03× as long",
                    detail="Idle times and gains are reported for the unprofiled run."),
        ),
        "verdict": Verdict(
            answer=Answer.PROBABLY, region_id="step",
            sentence="One graph over train.py:8-13 would probably make a step 7.2× faster: 3.19 ms → 443 µs "
                     "(333 µs to 608 µs), estimated, not verified.",
            reasons=("the step is busy 10.2 % of the time and waits for launches 91.0 %",),
            next_step="`cgadvisor profile script.py` captures the region, measures the real gain and checks the results.",
        ),
        "lines": lines(), "timeline": cut(), "series": series(), "syncs": (SYNC,),
        "kernels": tuple(
            KernelRow(name=name, kind="kernel", count=280 + 10 * i, total_ns=(900 - 150 * i) * US, median_ns=3_100 - 400 * i)
            for i, name in enumerate(KERNELS)
        ),
    }  # fmt: skip
    return Analysis(**{**values, **other})


def timing(before_us: float, after_us: float, **other: Any) -> Timing:
    values: dict[str, Any] = {
        "eager": samples(before_us, 61, 11), "graph": samples(after_us, 61, 12),
        "eager_again": samples(before_us * 1.004, 61, 13),
        "region_eager": samples(before_us * 0.93, 61, 14), "region_graph": samples(after_us * 0.8, 61, 15),
        "speedup_ratio": before_us / after_us, "speedup_low_ratio": before_us / after_us * 0.985,
        "speedup_high_ratio": before_us / after_us * 1.014, "region_speedup_ratio": before_us * 0.93 / (after_us * 0.8),
        "noise_ratio": 0.004,
    }  # fmt: skip
    return Timing(**{**values, **other})


def verified(**other: Any) -> Attempt:
    values: dict[str, Any] = {
        "id": "a1", "region_label": "train.py:8-13", "outcome": Outcome.VERIFIED, "location": span(8, 13), "region_id": "step",
        "message": "captured, replayed 105 times, results bit-identical",
        "equality": Equality(outcome=EqualityOutcome.BITWISE, step_count=105, tensor_count=42),
        "timing": timing(3188, 449), "replay_count": 105, "fallback_count": 0, "signature_count": 1, "node_count": 114,
        "traced_item_count": 114, "pool_bytes": 34 << 20, "capture_ns": 14_200 * US, "instantiate_ns": 1_900 * US,
        "break_even_replays": 35, "wall_ns": 21_400_000 * US, "log": "attempt-a1.log",
    }  # fmt: skip
    return Attempt(**{**values, **other})


CAPTURABLE = Fix(
    id="capturable", title="capturable=True",
    diff="--- train.py\n+++ train.py\n@@ -4 +4 @@\n-opt = torch.optim.Adam(model.parameters(), lr=1e-3)\n"
         "+opt = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)\n",
)  # fmt: skip


def blocked(**other: Any) -> Attempt:
    values: dict[str, Any] = {
        "id": "a0", "region_label": "train.py:8-13", "outcome": Outcome.BLOCKED, "location": span(8, 13), "region_id": "step",
        "message": "Adam raised inside the capture: capturable=False",
        "blocker": Blocker(
            id="opt-capturable", title="Adam without capturable=True", found_by="capture",
            evidence="RuntimeError: Attempting CUDA graph capture of step() for an instance of Adam but …",
            fix="pass capturable=True", location=span(13),
            library_location="/opt/venv/lib/python3.12/site-packages/torch/optim/optimizer.py:432",
        ),
        "wall_ns": 9_000_000 * US,
    }  # fmt: skip
    return Attempt(**{**values, **other})


def differs() -> Attempt:
    return verified(
        id="a2", region_label="train.py:10-12", location=span(10, 12), region_id=None, outcome=Outcome.DIFFERS, timing=None,
        message="parameters differ from the eager run from step 16 on",
        equality=Equality(
            outcome=EqualityOutcome.DIFFERS, step_count=105, tensor_count=42, first_step=16, first_name="0.weight.grad",
            max_abs_difference=0.0123, python_values=("losses",),
            hazard=Hazard(id="grad-accumulates", title="gradients accumulate over replays", evidence="0.weight.grad grows",
                          fix="capture zero_grad() too", location=span(12)),
        ),
    )  # fmt: skip


def with_fix() -> Attempt:
    return verified(id="a3", fixes=(CAPTURABLE,))


def verification(*attempts: Attempt) -> Verification:
    return Verification(
        attempts=attempts or (verified(), differs()),
        untried=("train.py:9: launches nothing",), budget_ns=300_000_000 * US, wall_ns=58_000_000 * US,
    )  # fmt: skip


def manifest() -> Manifest:
    return Manifest(
        tool_version="0.1.0", command=("cgadvisor", "profile", "train.py", "--epochs", "1"), script="train.py",
        created_at="2026-12-01T05:50:00Z", python_version="3.12.3", torch_version="2.11.0+cu130", cuda_version="13.0",
        driver_version="580.159", gpu_names=("NVIDIA H200",), gpu_clock_mhz=1980, cpu_count=16,
        options={"steps": "120", "argv": "--epochs\x1f1", "module": ""},
        source_files={"train.py": SOURCE}, passes=("clock", "trace", "calibrate"),
        notes=("not run: a second GPU was not visible",),
    )  # fmt: skip


def clock() -> Clock:
    return Clock(
        step_label="train.py:8-13", step_how="hot loop train.py:7", step_location=span(8, 13), warmup_count=10,
        host_step=samples(3188, 101, 2), device_step=samples(3180, 101, 4), range_cost_ns=900, peak_memory_bytes=512 << 20,
    )  # fmt: skip


def calibration() -> Calibration:
    return Calibration(
        gpu_name="NVIDIA H200", driver_version="580.159", torch_version="2.11.0+cu130", launch_cpu_ns=4_300.0,
        launch_to_start_ns=5_100.0, node_gap_ns=310.0, graph_launch_cpu_ns=7_900.0, graph_launch_cpu_per_node_ns=11.0,
        copy_fixed_ns=5_200.0, copy_per_byte_ns=0.02, instantiate_per_node_ns=9_000.0, range_ns=900.0,
        profiler_per_op_ns=2_400.0, residual_ratio=0.04, replay_span_ns=31_000.0, measured_at="2026-12-01T05:49:00Z",
    )  # fmt: skip


def full(**other: Any) -> RunContent:
    """Every artefact present."""
    values: dict[str, Any] = {
        "analysis": analysis(), "manifest": manifest(), "clock": clock(), "calibration": calibration(),
        "verification": verification(),
    }  # fmt: skip
    return RunContent(**{**values, **other})


def bare() -> RunContent:
    """A foreign trace without a step, clock, lines or attempts."""
    step = analysis()
    return RunContent(
        analysis=msgspec.structs.replace(
            step, step=None, regions=(), estimates=(), lines=(), timeline=None, series=(), kernels=(), blockers=(), findings=(),
            syncs=(), verdict=Verdict(answer=Answer.CANNOT_TELL, kind=NumberKind.PROFILED,
                                      sentence="Cannot tell: nothing in this recording repeats often enough to be a step."),
        )
    )  # fmt: skip


def nothing() -> RunContent:
    """No GPU item at all: every claim refused."""
    note = QualityNote(id="no-items", severity=Severity.ERROR, count=246, message="246 launches but not one GPU item",
                       forbids=("busy", "idle", "causes", "launches"))  # fmt: skip
    base = bare().analysis
    return RunContent(
        analysis=msgspec.structs.replace(
            base, devices=(), quality=(note,),
            verdict=Verdict(answer=Answer.CANNOT_TELL, sentence=f"Cannot tell: {note.message}.", kind=NumberKind.PROFILED),
        )
    )  # fmt: skip

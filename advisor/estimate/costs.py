"""The constants of the estimate: measured on this machine, or documented defaults with their published range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from advisor.model import Calibration

# In-graph gap between dependent kernels. Seven workloads on an H200 (torch 2.11, CUDA 13.0) gave (graphed step - busy) / items
# = 0.24 to 0.46 µs, median 0.34; published figures for other GPUs reach 1.5 µs.
NODE_GAP_NS: Final = (250.0, 400.0, 1300.0)
# One `CUDAGraph.replay()` from Python: 2.5 µs in the driver on CUDA 12.6 and later, about 10 µs through Python and torch.
REPLAY_CPU_NS: Final = (2_500.0, 10_000.0, 40_000.0)
REPLAY_CPU_PER_NODE_NS: Final = (0.0, 1.0, 200.0)  # constant-time launch from CUDA 12.6 on; 0.2 µs a node before it
LAUNCH_CPU_NS: Final = (1_500.0, 3_000.0, 5_000.0)
LAUNCH_TO_START_NS: Final = (1_500.0, 2_500.0, 8_000.0)  # null kernel: A100 2.26, H100 2.37, GH200 2.77 µs
COPY_FIXED_NS: Final = (1_500.0, 3_000.0, 6_000.0)
COPY_PER_BYTE_NS: Final = (0.0005, 0.001, 0.004)  # device to device, read and write: 0.25 to 2 TB/s
INSTANTIATE_PER_NODE_NS: Final = 1_500.0  # 100 nodes 127-168 µs, 1025 nodes 1.5-2.1 ms
CAPTURE_NS: Final = 100_000_000.0  # the guide's ballpark for one capture with its synchronisations
WARMUP_STEPS: Final = 3


@dataclass(frozen=True)
class Cost:
    """One constant, in ns: what is expected, and the range it was seen in."""

    low: float
    expected: float
    high: float


@dataclass(frozen=True)
class Costs:
    """All constants. `residual_ratio` is the calibration's own misfit; None when nothing was measured here.

    replay_cpu: CPU time of one graph replay (calibrated: with the verifier's own work around it), plus `replay_cpu_per_node` for
    each node; launch_to_start: from the start of a launch call to the start of its item on an idle device; copy_fixed + bytes x
    copy_per_byte: one input copy on the device.
    """

    node_gap: Cost
    replay_cpu: Cost
    replay_cpu_per_node: Cost
    launch_cpu: Cost
    launch_to_start: Cost
    copy_fixed: Cost
    copy_per_byte: Cost
    instantiate_per_node_ns: float
    residual_ratio: float | None

    @property
    def calibrated(self) -> bool:
        return self.residual_ratio is not None


def costs_of(calibration: Calibration | None) -> Costs:
    """The machine's constants, each with an interval as wide as its misfit; the documented defaults without a calibration."""
    if calibration is None:
        return Costs(
            node_gap=Cost(*NODE_GAP_NS),
            replay_cpu=Cost(*REPLAY_CPU_NS),
            replay_cpu_per_node=Cost(*REPLAY_CPU_PER_NODE_NS),
            launch_cpu=Cost(*LAUNCH_CPU_NS),
            launch_to_start=Cost(*LAUNCH_TO_START_NS),
            copy_fixed=Cost(*COPY_FIXED_NS),
            copy_per_byte=Cost(*COPY_PER_BYTE_NS),
            instantiate_per_node_ns=INSTANTIATE_PER_NODE_NS,
            residual_ratio=None,
        )
    spread = max(calibration.residual_ratio, 0.02)

    def around(value: float) -> Cost:
        return Cost(value * (1 - min(spread, 0.9)), value, value * (1 + spread))

    return Costs(
        # The gap depends on the kernels (how much they overlap their neighbours), not on the machine alone: chained null
        # kernels give its middle, real steps on one machine spread from 0.7 to 1.4 times that.
        node_gap=Cost(calibration.node_gap_ns * 0.6, calibration.node_gap_ns, calibration.node_gap_ns * 1.6),
        # As the verifier replays: what it compares and clones is part of what it measures.
        replay_cpu=around(max(calibration.graph_launch_cpu_ns, calibration.replay_span_ns)),
        replay_cpu_per_node=around(calibration.graph_launch_cpu_per_node_ns),
        launch_cpu=around(calibration.launch_cpu_ns),
        launch_to_start=around(calibration.launch_to_start_ns),
        copy_fixed=around(calibration.copy_fixed_ns),
        copy_per_byte=around(calibration.copy_per_byte_ns),
        instantiate_per_node_ns=calibration.instantiate_per_node_ns,
        residual_ratio=calibration.residual_ratio,
    )

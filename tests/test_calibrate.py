"""The machine pass without a GPU: a machine of known costs is measured back, a noisy one refused, the cache asked first."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
import report_builder
from hypothesis import given
from hypothesis import strategies as st

from advisor import cli
from advisor.bundle import load_artefact
from advisor.commands import calibrate as command
from advisor.errors import (
    EXIT_BAD_INPUT,
    EXIT_INCONCLUSIVE,
    EXIT_NEEDS_GPU,
    EXIT_OK,
    BundleError,
    GpuRequired,
    Inconclusive,
)
from advisor.model import Calibration
from advisor.workload import calibrate, environment

ROOT = Path(__file__).parents[1]
RECORDED = Path(__file__).parent / "data" / "calibration_h200.json"
US = 1_000
SPAN_NS = 42_000.0


# --- a machine with known costs ----------------------------------------------------------------------------------------


@dataclasses.dataclass
class Machine:
    """Costs in ns, and two clocks: `now` of the CPU, `free` when the GPU has done all it was given. `weather` gives a factor on
    all CPU costs, drawn anew at each synchronisation."""

    launch: float = 4_000.0
    op: float = 6_000.0
    op_to_start: float = 7_000.0
    kernel: float = 2_500.0
    gap: float = 330.0
    small_kernel: float = 900.0
    small_gap: float = 40.0
    replay: float = 5_000.0
    replay_per_node: float = 20.0
    instantiate: float = 80_000.0
    instantiate_per_node: float = 5_000.0
    copy: float = 1_200.0
    copy_per_byte: float = 0.0005
    annotate: float = 9_000.0  # record_function; NVTX takes another 500
    per_event: float = 600.0  # what the profiler adds for each event it records
    weather: object = None
    bend: dict = dataclasses.field(default_factory=dict)  # factor on the GPU time of graphs of that many nodes

    def __post_init__(self):
        self.now = self.free = 0.0
        self.factor = 1.0
        self.capturing = None
        self.events = None

    def spend(self, ns):
        self.now += ns * self.factor

    def work(self, ns, start=None):
        self.free = max(self.free, self.now if start is None else start) + ns
        return self.free - ns

    def synchronize(self):
        self.now = max(self.now, self.free)
        self.factor = self.weather() if self.weather else 1.0

    def times(self, size):
        """Duration of the kernel on so many elements, and the gap before it in a graph."""
        return (self.kernel, self.gap) if size > 256 else (self.small_kernel, self.small_gap)

    def add(self, size):
        if self.capturing is not None:
            self.capturing.length += 1
            self.capturing.each = sum(self.times(size))
            return self.spend(US)
        begin, cost = self.now, 0.0 if self.events is None else self.per_event
        self.spend(self.op + 2 * cost)
        length = self.times(size)[0]
        start = self.work(length, begin + self.op_to_start + cost)
        if self.events is not None:
            self.record(begin, start, length)

    def record(self, launch, start, length):
        ids = {"correlation": len(self.events)}
        self.events.append(
            {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": launch / US, "dur": 3.0, "args": ids}
        )
        self.events.append({"cat": "kernel", "name": "k", "ts": start / US, "dur": length / US, "args": ids})


class Graph:
    def __init__(self, machine):
        self.machine, self.length, self.each = machine, 0, 0.0

    def capture_begin(self):
        self.machine.capturing = self

    def capture_end(self):
        self.machine.capturing = None
        self.machine.spend(self.machine.instantiate + self.length * self.machine.instantiate_per_node)

    def replay(self):
        self.machine.spend(self.machine.replay + self.length * self.machine.replay_per_node)
        bend = self.machine.bend.get(self.length, 1.0)
        self.machine.work(bend * self.length * self.each)


class Event:
    def __init__(self, machine):
        self.machine, self.at = machine, 0.0

    def record(self):
        self.at = max(self.machine.now, self.machine.free)

    def synchronize(self):
        self.machine.synchronize()

    def elapsed_time(self, other):
        return (other.at - self.at) / 1e6


class Tensor:
    def __init__(self, machine, size):
        self.machine, self.size = machine, size

    def add_(self, _):
        self.machine.add(self.size)

    def copy_(self, _):
        self.machine.spend(self.machine.op)
        self.machine.work(self.machine.copy + self.size * self.machine.copy_per_byte)


class Profile:
    def __init__(self, machine):
        self.machine = machine

    def __enter__(self):
        self.machine.events = []
        return self

    def __exit__(self, *_):
        self.events, self.machine.events = self.machine.events, None

    def export_chrome_trace(self, path):
        # Rows without a correlation, and a launch whose kernel is not on record, belong to any real trace.
        stray = [{"cat": "cpu_op", "name": "aten::add_", "ts": 0, "dur": 1}, {"name": "process_name", "args": {}}]
        lost = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 1, "args": {"correlation": 10**6}}
        Path(path).write_text(json.dumps({"traceEvents": [*stray, lost, *self.events]}))


def torch_of(machine, **cuda):
    """What `advisor.workload.calibrate` touches of torch, on that machine."""

    @contextlib.contextmanager
    def annotation(_):
        machine.spend(machine.annotate)
        yield

    parts = {
        "is_available": lambda: True,
        "get_device_name": lambda: "Imagined 9000",
        "synchronize": machine.synchronize,
        "CUDAGraph": lambda: Graph(machine),
        "Stream": object,
        "stream": lambda _: contextlib.nullcontext(),
        "Event": lambda enable_timing: Event(machine),
        "_sleep": lambda _: machine.work(2_000 * US),
        "nvtx": SimpleNamespace(range_push=lambda _: machine.spend(250), range_pop=lambda: machine.spend(250)),
    }

    def launch_nothing(_):
        machine.spend(machine.launch)
        machine.work(1_000)

    return SimpleNamespace(
        __version__="2.99.0+fake",
        uint8="uint8",
        no_grad=contextlib.nullcontext,
        zeros=lambda size, **_: Tensor(machine, size),
        zeros_like=lambda one: Tensor(machine, one.size),
        cuda=SimpleNamespace(**{**parts, **cuda}),
        _C=SimpleNamespace(_cuda_sleep=launch_nothing),
        profiler=SimpleNamespace(
            record_function=annotation,
            profile=lambda activities: Profile(machine),
            ProfilerActivity=SimpleNamespace(CPU=0, CUDA=1),
        ),
    )


@pytest.fixture
def runs_on(monkeypatch):
    """Put a machine, or a fake torch, under the pass."""

    def use(machine, **cuda):
        clock = SimpleNamespace(perf_counter=lambda: machine.now / 1e9, perf_counter_ns=lambda: round(machine.now))
        monkeypatch.setattr(calibrate, "time", clock)
        monkeypatch.setitem(sys.modules, "torch", torch_of(machine, **cuda))
        monkeypatch.setattr(environment, "require_torch", lambda: None)
        monkeypatch.setattr(environment, "driver_version", lambda: "999.1")
        monkeypatch.setattr(calibrate, "_replay_span_ns", lambda torch: SPAN_NS)  # the real one needs the real torch

    return use


def test_the_costs_of_a_machine_are_measured_back(runs_on):
    machine = Machine()
    runs_on(machine)
    found = calibrate.calibrate()
    assert (found.gpu_name, found.driver_version, found.torch_version) == ("Imagined 9000", "999.1", "2.99.0+fake")
    assert found.launch_cpu_ns == pytest.approx(machine.launch, rel=0.001)
    assert found.launch_to_start_ns == pytest.approx(machine.op_to_start, rel=0.001)
    assert found.node_gap_ns == pytest.approx(machine.gap, rel=0.001)
    assert found.node_gap_small_ns == pytest.approx(machine.small_gap, rel=0.001)
    assert found.graph_launch_cpu_ns == pytest.approx(machine.replay, rel=0.001)
    assert found.graph_launch_cpu_per_node_ns == pytest.approx(machine.replay_per_node, rel=0.001)
    assert found.copy_fixed_ns == pytest.approx(machine.copy, rel=0.001)
    assert found.copy_per_byte_ns == pytest.approx(machine.copy_per_byte, rel=0.001)
    assert found.instantiate_per_node_ns == pytest.approx(machine.instantiate_per_node, rel=0.001)
    assert found.range_ns == pytest.approx(machine.annotate + 500, rel=0.001)
    assert found.profiler_per_op_ns == pytest.approx(machine.per_event, rel=0.001)
    assert 0 <= found.residual_ratio < 0.001
    assert found.replay_span_ns == SPAN_NS
    assert found.measured_at


@pytest.mark.parametrize(
    "costs",
    [
        {"replay": 40_000.0, "replay_per_node": 200.0},
        {"gap": 1_500.0, "kernel": 9_000.0},
        {"small_gap": 250.0, "small_kernel": 1_300.0},
        {"copy": 6_000.0, "copy_per_byte": 0.004},
        {"per_event": 3_400.0},
    ],
    ids=" ".join,
)
def test_other_machines_too(runs_on, costs):
    runs_on(Machine(**costs))
    found = calibrate.calibrate()
    names = {
        "replay": "graph_launch_cpu_ns", "replay_per_node": "graph_launch_cpu_per_node_ns", "gap": "node_gap_ns",
        "small_gap": "node_gap_small_ns",
        "copy": "copy_fixed_ns", "copy_per_byte": "copy_per_byte_ns", "per_event": "profiler_per_op_ns",
    }  # fmt: skip
    for cost in costs.keys() & names:
        assert getattr(found, names[cost]) == pytest.approx(costs[cost], rel=0.002), cost


def test_no_constant_is_negative_where_kernels_overlap_in_the_graph(runs_on):
    runs_on(Machine(gap=-400.0, replay_per_node=0.0, per_event=0.0))
    found = calibrate.calibrate()
    constants = {key: value for key, value in msgspec.structs.asdict(found).items() if key.endswith("_ns")}
    assert min(constants.values()) >= 0
    assert found.node_gap_ns == 0
    assert found.profiler_per_op_ns == 0


def test_mild_noise_shows_in_the_residual_and_hardly_in_the_constants(runs_on):
    draw = random.Random(4)
    runs_on(Machine(weather=lambda: draw.gauss(1, 0.03)))
    found = calibrate.calibrate()
    assert 0.005 < found.residual_ratio < calibrate.MAX_SPREAD
    assert found.launch_cpu_ns == pytest.approx(4_000, rel=0.05)
    assert found.node_gap_ns == pytest.approx(330, rel=0.05)


def noisy():
    draw = random.Random(4)
    return Machine(weather=lambda: draw.choice((0.5, 1.0, 2.0)))


def test_a_noisy_machine_is_refused_and_named(runs_on):
    runs_on(noisy())
    with pytest.raises(Inconclusive, match=r"too noisy to calibrate: the \w+ of a \w+ varied by \d+% \(limit 25%\)"):
        calibrate.calibrate()


def test_lengths_off_the_line_are_the_residual(runs_on):
    # Three points of which the middle one is 20 % too high: in nodes, 153.6 where the line through 32, 153.6 and 384 has 137.6.
    runs_on(Machine(bend={128: 1.2}))
    assert calibrate.calibrate().residual_ratio == pytest.approx(16.0 / 384, rel=0.01)


def test_lengths_far_off_the_line_are_refused(runs_on):
    runs_on(Machine(bend={128: 3.0}))
    with pytest.raises(Inconclusive, match="the fit of the in-graph gap varied by"):
        calibrate.calibrate()


def test_a_refusal_is_one_line_and_leaves_no_file(runs_on, tmp_path, capsys):
    runs_on(noisy())
    assert calibrate.main([str(tmp_path / "c.json")]) == EXIT_INCONCLUSIVE
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and "too noisy" in said.err
    assert said.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_measurement_is_written_as_an_artefact(runs_on, tmp_path, capsys):
    runs_on(Machine())
    assert calibrate.main([str(tmp_path / "c.json")]) == EXIT_OK
    assert load_artefact(tmp_path / "c.json", Calibration).gpu_name == "Imagined 9000"
    assert capsys.readouterr() == ("", "")


def test_without_a_device_it_says_so_in_one_line(runs_on, tmp_path, capsys):
    runs_on(Machine(), is_available=lambda: False)
    assert calibrate.main([str(tmp_path / "c.json")]) == EXIT_NEEDS_GPU
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and "no CUDA device" in said
    assert list(tmp_path.iterdir()) == []


def test_too_few_recorded_kernels_are_no_measurement(runs_on, monkeypatch):
    runs_on(Machine())
    monkeypatch.setattr(calibrate, "launches_and_kernels", lambda events: ({}, {}))
    with pytest.raises(Inconclusive, match="too few kernels"):
        calibrate.calibrate()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_garbage_collector_is_left_as_it_was(runs_on, enabled):
    runs_on(noisy())
    was = calibrate.gc.isenabled()
    try:
        (calibrate.gc.enable if enabled else calibrate.gc.disable)()
        with pytest.raises(Inconclusive):
            calibrate.calibrate()
        assert calibrate.gc.isenabled() is enabled
    finally:
        (calibrate.gc.enable if was else calibrate.gc.disable)()


# --- the arithmetic ----------------------------------------------------------------------------------------------------


@given(
    st.floats(0, 1e6),
    st.floats(0, 1e4),
    st.lists(st.integers(0, 10_000), min_size=2, max_size=6, unique=True),
)
def test_a_fit_gives_back_the_fixed_and_the_per_unit_cost(fixed, slope, sizes):
    line = calibrate.fit_line(sizes, [fixed + slope * size for size in sizes])
    scale = fixed + slope * max(sizes)
    assert line.fixed == pytest.approx(fixed, rel=1e-6, abs=1e-6 * scale + 1e-9)
    assert line.slope == pytest.approx(slope, rel=1e-6, abs=1e-6 * scale + 1e-9)
    assert line.residual_ratio < 1e-6


def test_a_misfit_is_reported_as_a_share_of_the_largest_value():
    # 0, 10 and 20 but for one 3 too high: the line lies 1 above the outer points and 2 below that one.
    line = calibrate.fit_line([0, 1, 2], [0.0, 13.0, 20.0])
    assert (line.fixed, line.slope) == (pytest.approx(1.0), pytest.approx(10.0))
    assert line.residual_ratio == pytest.approx(2.0 / 20.0)


@pytest.mark.parametrize(("xs", "ys"), [([], []), ([5], [1.0]), ([5, 5], [1.0, 2.0]), ([1, 2], [1.0])])
def test_one_size_makes_no_line(xs, ys):
    with pytest.raises(ValueError, match="two different sizes"):
        calibrate.fit_line(xs, ys)


def test_a_sample_is_the_median_and_its_spread_ignores_single_outliers():
    values = [100.0] * 12 + [5_000.0, 9_000.0, 1.0]
    assert calibrate.Sample.of(values) == calibrate.Sample(100.0, 0.0)
    wide = calibrate.Sample.of([50.0, 100.0, 150.0])
    assert (wide.ns, wide.spread_ratio) == (100.0, 0.5)


def test_noise_up_to_the_limit_passes_and_the_largest_is_the_residual():
    assert calibrate.refuse_noise({"a": 0.1, "b": calibrate.MAX_SPREAD}) == calibrate.MAX_SPREAD
    with pytest.raises(Inconclusive, match=r"the b varied by 26%.*default constants") as refused:
        calibrate.refuse_noise({"the a": 0.1, "the b": 0.26})
    assert "\n" not in str(refused.value)
    assert refused.value.exit_code == EXIT_INCONCLUSIVE


def test_only_launches_and_kernels_that_have_each_other_count():
    def row(cat, name, correlation, ts=5.0):
        return {"cat": cat, "name": name, "ts": ts, "dur": 2.0, "args": {"correlation": correlation}}

    kernels, launches = calibrate.launches_and_kernels(
        [
            row("cuda_runtime", "cudaLaunchKernel", 1), row("kernel", "k", 1, 9.5),
            row("cuda_driver", "cuLaunchKernelEx", 2), row("kernel", "k", 2),
            row("cuda_runtime", "cudaMemcpyAsync", 3), row("kernel", "k", 3),
            row("cuda_runtime", "cudaLaunchKernel", 4), row("gpu_memset", "Memset", 4),
            row("kernel", "k", 5), {"name": "process_name", "args": {}}, {"cat": "kernel", "name": "no args"},
        ]
    )  # fmt: skip
    assert kernels == {1: (9_500.0, 2_000.0), 2: (5_000.0, 2_000.0)}
    assert launches == {1: 5_000.0, 2: 5_000.0}


# --- the cache ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Place:
    """A machine as `cgadvisor calibrate` meets it: its cache, and an interpreter that answers with a prepared file or refusal
    instead of measuring."""

    folder: Path
    versions: dict[str, str]

    @property
    def cache(self):
        return self.folder / "cache" / "cgadvisor"

    @property
    def python(self):
        return str(self.folder / "python")

    def answers(self, shell="", **other):
        """The next child runs `shell` and leaves; without it, it writes the constants of the machine as it is now."""
        made = msgspec.structs.replace(
            report_builder.calibration(),
            driver_version=self.versions["driver"],
            torch_version=self.versions["torch"],
            **other,
        )
        (self.folder / "answer.json").write_bytes(msgspec.json.encode(made))
        log, answer = self.folder / "log", self.folder / "answer.json"
        text = f'#!/bin/sh\necho "$2 $PYTHONPATH" >>{log}\n{shell or f"cp {answer} $3"}\n'
        Path(self.python).write_text(text)
        Path(self.python).chmod(0o755)

    def measured(self):
        """How many times a child ran."""
        log = self.folder / "log"
        return len(log.read_text().splitlines()) if log.exists() else 0

    def constants(self, **options):
        return command.machine_calibration(python=self.python, **options)

    def cached(self):
        return sorted(path.name for path in self.cache.iterdir())


@pytest.fixture
def place(tmp_path, monkeypatch):
    made = Place(tmp_path, {"driver": "580.159", "torch": "2.11.0+cu130"})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # nobody else's measurement is waited for
    monkeypatch.setattr(environment, "driver_version", lambda: made.versions["driver"])
    monkeypatch.setattr(environment, "torch_versions", lambda: (made.versions["torch"], "13.0"))
    monkeypatch.setitem(command.machine_calibration.__kwdefaults__, "python", made.python)
    made.answers()
    return made


def test_the_second_call_does_not_measure(place):
    first, second = place.constants(), place.constants()
    assert first == second
    assert place.measured() == 1
    assert place.cached() == ["calibration_NVIDIA-H200_580.159_2.11.0+cu130.json"]
    assert first[1] == place.cache / place.cached()[0]


def test_refresh_measures_again_and_replaces(place):
    place.constants()
    place.answers(node_gap_ns=777.0)
    assert place.constants(refresh=True)[0].node_gap_ns == 777.0
    assert place.constants()[0].node_gap_ns == 777.0
    assert (place.measured(), len(place.cached())) == (2, 1)


@pytest.mark.parametrize(("part", "value"), [("driver", "590.44"), ("torch", "2.12.0+cu130")])
def test_another_driver_or_torch_measures_again_and_keeps_the_old_file(place, part, value):
    place.constants()
    before = dict(place.versions)
    place.versions[part] = value
    place.answers(node_gap_ns=777.0)
    assert place.constants()[0].node_gap_ns == 777.0
    assert (place.measured(), len(place.cached())) == (2, 2)
    place.versions.update(before)  # back to the old one: still there
    assert place.constants()[0].node_gap_ns == 310.0
    assert place.measured() == 2


def test_constants_of_another_gpu_are_not_taken(place):
    """A home folder shared between machines: driver and torch are the same, the GPU is not."""
    place.answers(gpu_name="NVIDIA A100-SXM4-40GB", node_gap_ns=777.0)
    place.constants()
    place.answers()
    assert place.constants(gpu_name="NVIDIA H200")[0].gpu_name == "NVIDIA H200"
    assert place.measured() == 2
    assert place.constants(gpu_name="NVIDIA A100-SXM4-40GB")[0].node_gap_ns == 777.0
    assert place.measured() == 2


def test_a_version_that_only_begins_alike_is_another_one(place):
    place.versions["torch"] = "2.11.0+cu1301"
    place.answers()
    place.constants()
    place.versions["torch"] = "2.11.0+cu130"
    place.answers()
    place.constants()
    assert place.measured() == 2


def test_where_the_constants_of_several_gpus_would_fit_it_measures(place):
    place.constants()
    place.answers(gpu_name="NVIDIA A100-SXM4-40GB")
    place.constants(refresh=True)
    assert len(place.cached()) == 2
    assert place.constants()[0].gpu_name == "NVIDIA A100-SXM4-40GB"
    assert place.measured() == 3


def test_a_driver_that_cannot_be_told_is_measured_each_time(place):
    place.versions["driver"] = ""
    place.answers()
    place.constants()
    place.constants()
    assert place.measured() == 2
    assert place.cached() == ["calibration_NVIDIA-H200_unknown_2.11.0+cu130.json"]


BROKEN = {
    "empty": b"",
    "cut": RECORDED.read_bytes()[:100],
    "no object": b"[1, 2]",
    "lacking constants": b'{"gpu_name": "NVIDIA H200"}',
    "wrong type": RECORDED.read_bytes().replace(b"5853.9", b'"fast"'),
    "newer format": b'{"format": 99}',
    "binary": bytes(range(256)),
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
def test_a_broken_or_newer_cache_file_is_measured_again(place, content):
    _, path = place.constants()
    path.write_bytes(content)
    found, again = place.constants()
    assert (found.node_gap_ns, again) == (310.0, path)
    assert place.measured() == 2
    place.constants()
    assert place.measured() == 2


def test_what_a_child_leaves_broken_is_refused_and_not_cached(place):
    place.answers('echo \'{"format": 99}\' >"$3"')
    with pytest.raises(BundleError, match="newer than this cgadvisor reads"):
        place.constants()
    assert place.cached() == []


def test_a_refusal_keeps_the_cached_constants(place):
    place.constants()
    place.answers("echo noise >&2; exit 5")
    with pytest.raises(Inconclusive):
        place.constants(refresh=True)
    assert place.cached() == ["calibration_NVIDIA-H200_580.159_2.11.0+cu130.json"]
    assert place.constants()[0].node_gap_ns == 310.0


def test_a_cache_that_cannot_be_made_is_named(place):
    (place.folder / "cache").write_text("a file where the folder should be")
    with pytest.raises(BundleError, match="cannot make the cache folder") as refused:
        place.constants()
    assert str(place.cache) in str(refused.value)
    assert place.measured() == 0


def test_a_cache_that_cannot_be_written_is_named_before_it_measures(place, monkeypatch):
    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(BundleError, match="cannot write to the cache folder: Permission denied"):
        place.constants()
    assert place.measured() == 0


def test_a_gpu_that_others_will_not_give_is_not_calibrated(place, monkeypatch):
    monkeypatch.setattr(command.Turn, "is_crowded", True)
    with pytest.raises(Inconclusive, match="would not give the GPU"):
        place.constants()
    assert place.measured() == 0


def test_without_the_variable_the_cache_is_in_the_home_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", None):
        monkeypatch.delenv("XDG_CACHE_HOME") if unset is None else monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert command.cache_folder() == tmp_path / ".cache" / "cgadvisor"


def test_a_name_holds_nothing_a_file_system_minds():
    name = command.file_name("NVIDIA / GeForce: RTX™ 4090*", "", "2.11.0a0+git..\\x")
    assert name == "calibration_NVIDIA-GeForce-RTX-4090_unknown_2.11.0a0+git..-x.json"


# --- the child, and the command around it ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shell", "error", "said"),
    [
        ("echo first >&2; echo 'no GPU here' >&2; exit 4", GpuRequired, "no GPU here"),
        ("echo 'too noisy' >&2; exit 5", Inconclusive, "too noisy"),
        ("echo Traceback >&2; echo 'RuntimeError: boom' >&2; exit 1", Inconclusive, "exit code 1: RuntimeError: boom"),
        ("exit 7", Inconclusive, "exit code 7: it left no message"),
    ],
)
def test_the_childs_last_line_and_code_come_through(place, shell, error, said):
    place.answers(shell)
    with pytest.raises(error, match=said) as refused:
        place.constants()
    assert "\n" not in str(refused.value)
    assert place.cached() == []


def test_a_child_that_hangs_is_given_up(place, monkeypatch):
    monkeypatch.setattr(command, "TIMEOUT_S", 0.2)
    place.answers("exec sleep 60")
    with pytest.raises(Inconclusive, match="did not finish"):
        place.constants()


def test_an_interpreter_that_is_not_there_is_named(place):
    with pytest.raises(GpuRequired, match=r"nowhere/python: cannot start: No such file"):
        command.machine_calibration(python="/nowhere/python")


def test_the_child_finds_this_package_and_keeps_the_users_path(place, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/theirs")
    place.constants()
    module, path = (place.folder / "log").read_text().split()
    assert module == "advisor.workload.calibrate"
    assert path == f"{ROOT}{os.pathsep}/theirs"


def cgadvisor(monkeypatch, capsys, *argv):
    """(exit code, stdout, stderr) of the command line in this process: the fake interpreter is known here only."""
    monkeypatch.setattr(sys, "argv", ["cgadvisor", *map(str, argv)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code, *capsys.readouterr()


def test_the_command_prints_every_constant_and_where_they_are(place, monkeypatch, capsys):
    place.answers(copy_per_byte_ns=0.0005)
    code, out, err = cgadvisor(monkeypatch, capsys, "calibrate", "--out", place.folder / "mine.json")
    assert (code, err) == (EXIT_OK, "")
    assert out.startswith("NVIDIA H200, driver 580.159, torch 2.11.0+cu130\n")
    table = {line[:32].strip(): line[32:].strip() for line in out.splitlines()[1:-1]}
    assert table["gap between graph nodes"] == "310 ns"
    assert table["graph launch, CPU"] == "7.90 µs"
    assert table["replay by the verifier, CPU"] == "31.0 µs"
    assert table["device copy, bandwidth"] == "1,863 GiB/s"
    assert table["spread of the measurements"] == "4.0 %"
    assert len(table) == 12
    assert out.splitlines()[-1] == f"cached in {place.cache / place.cached()[0]}"
    assert load_artefact(place.folder / "mine.json", Calibration) == place.constants()[0]


def test_the_command_measures_once_until_told_to_refresh(place, monkeypatch, capsys):
    for argv, expected in (((), 1), ((), 1), (("--refresh",), 2)):
        assert cgadvisor(monkeypatch, capsys, "calibrate", *argv)[0] == EXIT_OK
        assert place.measured() == expected


@pytest.mark.parametrize(
    ("shell", "expected", "said"),
    [
        ("echo 'this machine is too noisy to calibrate' >&2; exit 5", EXIT_INCONCLUSIVE, "too noisy"),
        ("echo 'torch sees no CUDA device' >&2; exit 4", EXIT_NEEDS_GPU, "no CUDA device"),
    ],
)
def test_the_command_refuses_in_one_line(place, monkeypatch, capsys, shell, expected, said):
    place.answers(shell)
    code, out, err = cgadvisor(monkeypatch, capsys, "calibrate")
    assert (code, out) == (expected, "")
    assert err.startswith("cgadvisor: ") and said in err and err.count("\n") == 1


def test_a_file_that_cannot_be_written_is_bad_input(place, monkeypatch, capsys):
    code, _, err = cgadvisor(monkeypatch, capsys, "calibrate", "--out", place.folder / "none" / "mine.json")
    assert code == EXIT_BAD_INPUT
    assert "cannot write" in err and err.count("\n") == 1


def test_no_gpu_is_exit_code_4_and_one_line(tmp_path):
    # With the GPUs hidden, any machine is one without; whether torch is there or not, there is nothing to measure.
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", "from advisor.cli import main; main()", "calibrate"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environ, timeout=120)
    assert done.returncode == EXIT_NEEDS_GPU, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("cgadvisor: ") and done.stderr.count("\n") == 1
    assert list((tmp_path / "cgadvisor").iterdir()) == []


# --- a real measurement ------------------------------------------------------------------------------------------------


def test_the_recorded_measurement_of_an_h200_is_plausible():
    found = load_artefact(RECORDED, Calibration)
    assert (found.gpu_name, found.torch_version) == ("NVIDIA H200", "2.11.0+cu130")
    assert 200 <= found.node_gap_ns <= 1_500
    assert 1_000 <= found.launch_cpu_ns <= 10_000
    assert found.launch_cpu_ns < found.launch_to_start_ns < 20_000
    assert 1_000 <= found.graph_launch_cpu_ns <= 20_000
    assert 0 <= found.graph_launch_cpu_per_node_ns <= 200
    assert 1 / found.copy_per_byte_ns == pytest.approx(2_000, rel=0.2)  # GB/s: half of 4.8 TB/s, read and written
    assert 0 < found.residual_ratio <= calibrate.MAX_SPREAD
    constants = {key: value for key, value in msgspec.structs.asdict(found).items() if key.endswith("_ns")}
    # Recorded before these were measured: not shown, and not used.
    assert constants.pop("replay_span_ns") == constants.pop("node_gap_small_ns") == 0
    assert min(constants.values()) > 0
    assert "0 ns" not in command.render(found).split()

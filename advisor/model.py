"""The frozen values that pass between the stages and make up the artefacts of a run.

Times are int64 nanoseconds (`_ns`), shares 0..1 (`_ratio`), sizes `_bytes`. "Per step" and "per occurrence" figures are
medians over the recorded steps or occurrences unless a docstring says otherwise. Everything here is plain data that
msgspec writes to JSON and reads back; nothing here imports pandas, plotly or torch.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Value(msgspec.Struct, frozen=True, omit_defaults=True):
    """Base of every value: frozen; defaults are left out of the JSON."""


# --- vocabulary ------------------------------------------------------------------------------------------------------


class Cause(StrEnum):
    """Why a device was idle. Exclusive; the first that applies, in this order."""

    UNKNOWN = "unknown"
    PROFILER = "profiler"
    SYNC = "sync"
    INPUT = "input"
    LAUNCH = "launch"
    DEVICE = "device"


class Layer(StrEnum):
    """What the CPU was doing during a launch-bound gap."""

    LANGUAGE = "language"
    FRAMEWORK = "framework"
    DRIVER = "driver"
    SUBMISSION = "submission"


class NumberKind(StrEnum):
    """How a number that reaches a user came to be; always shown beside it."""

    MEASURED = "measured"  # clocked without a profiler
    CALIBRATED = "calibrated"  # from a trace, deflated to the unprofiled clock
    PROFILED = "profiled"  # as the trace has it; the profiler may have inflated it
    ESTIMATED = "estimated"  # predicted by a model


class Answer(StrEnum):
    """The six answers the tool gives."""

    GRAPH_IT = "graph_it"  # verified
    PROBABLY = "probably"  # estimated only
    NOT_WORTH_IT = "not_worth_it"
    BLOCKED = "blocked"
    ALREADY_GRAPHED = "already_graphed"
    CANNOT_TELL = "cannot_tell"


class RegionKind(StrEnum):
    STEP = "step"
    LOOP = "loop"
    STATEMENT = "statement"
    MODULE = "module"
    RANGE = "range"  # NVTX, record_function or advisor.region
    OPTIMIZER = "optimizer"
    SEQUENCE = "sequence"  # a repeated kernel sequence found in an unannotated trace


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Outcome(StrEnum):
    """What one verification attempt ended with."""

    VERIFIED = "verified"
    NOT_FASTER = "not_faster"
    DIFFERS = "differs"
    BLOCKED = "blocked"
    NO_REPLAY = "no_replay"  # captured, but no replay ran: never counted
    CRASHED = "crashed"
    TIMED_OUT = "timed_out"
    NOT_ATTEMPTED = "not_attempted"


class EqualityOutcome(StrEnum):
    BITWISE = "bitwise"
    WITHIN_NOISE = "within_noise"  # within the difference of two eager runs
    DIFFERS = "differs"
    NOT_CHECKED = "not_checked"


# --- small parts -----------------------------------------------------------------------------------------------------


class SourceSpan(Value, frozen=True, kw_only=True):
    """Lines of a source file, 1-based, inclusive. `file` is relative to the script's folder."""

    file: str
    first_line: int
    last_line: int

    @property
    def label(self) -> str:
        lines = f"{self.first_line}" if self.first_line == self.last_line else f"{self.first_line}-{self.last_line}"
        return f"{self.file}:{lines}"


class IdleByCause(Value, frozen=True, kw_only=True):
    """Idle time of one device in one window, by cause. The fields sum to the window's idle time."""

    unknown_ns: int = 0
    profiler_ns: int = 0
    sync_ns: int = 0
    input_ns: int = 0
    launch_ns: int = 0
    device_ns: int = 0

    @property
    def total_ns(self) -> int:
        return sum(self.by_cause().values())

    def by_cause(self) -> dict[Cause, int]:
        return {cause: getattr(self, f"{cause.value}_ns") for cause in Cause}


class Layers(Value, frozen=True, kw_only=True):
    """Launch-bound idle time by overhead layer. The fields sum to `IdleByCause.launch_ns` of the same window."""

    language_ns: int = 0
    framework_ns: int = 0
    driver_ns: int = 0
    submission_ns: int = 0

    @property
    def total_ns(self) -> int:
        return sum(self.by_layer().values())

    def by_layer(self) -> dict[Layer, int]:
        return {layer: getattr(self, f"{layer.value}_ns") for layer in Layer}


class Distribution(Value, frozen=True, kw_only=True):
    """Order statistics of a sample, and a histogram over logarithmic bins. Unit: that of the sample (ns or 1)."""

    count: int
    minimum: float
    p05: float
    p25: float
    median: float
    p75: float
    p95: float
    maximum: float
    mean: float
    bin_edges: tuple[float, ...] = ()  # n + 1 edges
    bin_counts: tuple[int, ...] = ()  # n counts


class Measurement(Value, frozen=True, kw_only=True):
    """Raw samples of one quantity. Statistics are derived by `advisor.compare`, never stored instead of them."""

    samples_ns: tuple[int, ...]
    kind: NumberKind = NumberKind.MEASURED


class Term(Value, frozen=True, kw_only=True):
    """One signed contribution to an estimate: positive saves time, negative costs it."""

    id: str
    label: str
    ns: int
    kind: NumberKind = NumberKind.ESTIMATED
    note: str = ""


# --- what a trace says -------------------------------------------------------------------------------------------------


class QualityNote(Value, frozen=True, kw_only=True):
    """One thing the file cannot support or the reader had to mend.

    `forbids` lists the claims it rules out: any of "busy", "idle", "causes", "layers", "launches", "regions",
    "estimate", "sub_us". `ratio` is `count` over its natural total.
    """

    id: str
    severity: Severity
    count: int
    message: str
    forbids: tuple[str, ...] = ()
    ratio: float | None = None


class TraceInfo(Value, frozen=True, kw_only=True):
    """Where the events came from. Nothing from the environment, no host or user name."""

    source: str  # "kineto" | "nsight"
    files: tuple[str, ...]  # base names only
    format_detail: str = ""  # "schema 3.20.3, nsys 2025.3", "schemaVersion 1, CUPTI 26"
    gpu_names: tuple[str, ...] = ()
    cuda_version: str = ""
    torch_version: str = ""
    rank_count: int = 1
    event_count: int = 0


class LaunchStats(Value, frozen=True, kw_only=True):
    """Launches of one device's items in the window. All distributions in ns but `ratio` (issue_ns / item_ns)."""

    launch_count: int
    item_count: int
    api: Distribution | None = None
    latency: Distribution | None = None
    queue: Distribution | None = None
    issue: Distribution | None = None
    ratio: Distribution | None = None
    issue_to_busy_ratio: float | None = None
    api_to_busy_ratio: float | None = None
    negative_latency_count: int = 0
    calls_by_api: dict[str, int] = {}
    sync_count: int = 0


class GraphCoverage(Value, frozen=True, kw_only=True):
    """How much of the work already runs inside CUDA graph replays."""

    launch_count: int = 0
    item_count: int = 0
    item_ratio: float = 0.0
    busy_ratio: float = 0.0
    opaque_ns: int = 0  # graph-granularity executions: busy, nothing known inside


class DeviceSummary(Value, frozen=True, kw_only=True):
    """One device of one rank over the analysed window. busy_ns + idle.total_ns == end_ns - start_ns."""

    rank: int
    device: int
    gpu_name: str
    start_ns: int
    end_ns: int
    busy_ns: int
    idle: IdleByCause
    layers: Layers
    item_count: int
    kernel_count: int
    memcpy_count: int
    memset_count: int
    stream_count: int
    gap_count: int
    long_gap_ns: int  # idle time in gaps over 1 ms
    alloc_ns: int = 0  # launch-bound idle time the CPU spent in allocation calls of the CUDA API
    launches: LaunchStats
    graphs: GraphCoverage
    gap_sizes: Distribution | None = None


class Step(Value, frozen=True, kw_only=True):
    """The step the run is judged by, and why this one was chosen."""

    id: str  # the region id of the step
    label: str
    how: str  # "ProfilerStep ranges", "hot loop train.py:41", "repeated kernel sequence, period 114", ...
    count: int
    traced: Measurement  # one sample a step, as the trace has it
    clocked: Measurement | None = None  # unprofiled
    location: SourceSpan | None = None

    # traced median / clocked median; None without a clock pass
    inflation_ratio: float | None = None


class Region(Value, frozen=True, kw_only=True):
    """A named piece of the program. Figures are medians per occurrence, as traced.

    Items belong to a region by their launch; a gap belongs to the item that ends it, so busy_ns + idle.total_ns is the
    device time the region accounts for (`extent_ns`), and sibling regions add up.
    """

    id: str
    label: str
    kind: RegionKind
    rank: int
    device: int
    occurrence_count: int
    occurrences_per_step: float
    item_count: float
    launch_count: float
    busy_ns: int
    idle: IdleByCause
    layers: Layers
    extent_ns: int
    step_share_ratio: float  # extent of all its occurrences in a step over the step
    cpu_ns: int  # duration of the CPU range; 0 for a kernel sequence
    sync_count: float = 0.0
    h2d_count: float = 0.0
    d2h_count: float = 0.0
    graph_launch_count: float = 0.0
    graphed_item_ratio: float = 0.0
    signature: str = ""  # hash of the most frequent sequence of item names
    signature_match_ratio: float = 0.0  # occurrences that have it
    signature_count: int = 0
    shape_signature_count: int | None = None  # distinct input shapes; None when not recorded
    location: SourceSpan | None = None
    parent_id: str | None = None
    how: str = ""
    bytes_in: int = 0  # input bytes a replay would have to stage, when known
    long_gap_ns: int = 0  # of the idle time, in gaps over 1 ms
    kernel_count: float = 0.0  # items that are kernels, not copies or memsets


class Blocker(Value, frozen=True, kw_only=True):
    """Stops a capture. `id` is one of the ids of the blocker table in docs/blockers.md."""

    id: str
    title: str
    evidence: str
    fix: str
    location: SourceSpan | None = None  # the user's line
    library_location: str = ""  # where inside a library it was raised, when it was
    region_id: str | None = None
    count_per_step: float = 0.0
    found_by: str = "trace"  # "trace" | "source" | "capture"


class Hazard(Value, frozen=True, kw_only=True):
    """A capture would succeed and be wrong or slow."""

    id: str
    title: str
    evidence: str
    fix: str
    location: SourceSpan | None = None
    region_id: str | None = None
    found_by: str = "trace"


class Finding(Value, frozen=True, kw_only=True):
    """Advice that is neither a blocker nor a hazard: what was seen, what it means, what to do."""

    id: str
    severity: Severity
    title: str
    detail: str
    fix: str = ""
    location: SourceSpan | None = None
    region_id: str | None = None
    url: str = ""


class Estimate(Value, frozen=True, kw_only=True):
    """What graphing one region would save per step, with its terms. saved = sum of terms, clipped at the floor."""

    region_id: str
    before_ns: int  # the step now, on the clock named by `kind`
    saved_low_ns: int
    saved_ns: int
    saved_high_ns: int
    terms: tuple[Term, ...]
    assumptions: tuple[str, ...]
    kind: NumberKind = NumberKind.ESTIMATED
    region_before_ns: int = 0
    region_after_ns: int = 0
    one_off_ns: int = 0  # warm-up, capture and instantiate
    break_even_replays: int | None = None
    pool_bytes: int | None = None
    binds_next: str = ""  # what limits the step afterwards: "gpu" | "cpu" | "sync" | "input"
    interval: tuple[Term, ...] = ()  # half-widths of the interval by source, unsigned; joined as independent errors
    without_syncs_ns: int | None = None  # the step if the synchronisations inside the region were gone; None without any

    @property
    def after_ns(self) -> int:
        return self.before_ns - self.saved_ns

    @property
    def speedup_ratio(self) -> float:
        return self.before_ns / self.after_ns if self.after_ns > 0 else 1.0


class LineRow(Value, frozen=True, kw_only=True):
    """One line span of the hot loop for the per-line view; figures per step."""

    location: SourceSpan
    text: str
    depth: int
    launch_count: float
    item_count: float
    busy_ns: int
    idle: IdleByCause
    layers: Layers
    sync_count: float
    step_share_ratio: float
    region_id: str | None = None


class Lane(Value, frozen=True, kw_only=True):
    """One horizontal track of a timeline cut, columnar: the arrays have one entry an event.

    kind: "cpu" | "launch" | "stream" | "gap" | "range". `name_ids` index `TimelineCut.names`. `links` gives, for a
    stream item, the index of its launch within the launch lanes taken together in order, or -1.
    """

    id: str
    label: str
    kind: str
    start_ns: tuple[int, ...]  # relative to TimelineCut.start_ns
    duration_ns: tuple[int, ...]
    name_ids: tuple[int, ...]
    depths: tuple[int, ...] = ()
    links: tuple[int, ...] = ()


class TimelineCut(Value, frozen=True, kw_only=True):
    """The events of one step (and a little on both sides), for drawing."""

    label: str
    start_ns: int
    end_ns: int
    lanes: tuple[Lane, ...]
    names: tuple[str, ...]
    truncated_count: int = 0


class Series(Value, frozen=True, kw_only=True):
    """A plotted series of figures; `x` and `y` have equal length. `names` labels points when given."""

    id: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    x_label: str
    y_label: str
    names: tuple[str, ...] = ()


class KernelRow(Value, frozen=True, kw_only=True):
    """All items of one name in the window."""

    name: str
    kind: str
    count: int
    total_ns: int
    median_ns: int
    graphed_ratio: float = 0.0


class Verdict(Value, frozen=True, kw_only=True):
    """The answer, in one sentence, with what carries it."""

    answer: Answer
    sentence: str
    reasons: tuple[str, ...] = ()
    region_id: str | None = None
    attempt_id: str | None = None
    next_step: str = ""
    kind: NumberKind = NumberKind.ESTIMATED


class Analysis(Value, frozen=True, kw_only=True):
    """findings.json: everything a report or gate needs, without the trace."""

    format: int = 1
    tool_version: str = ""
    trace: TraceInfo
    quality: tuple[QualityNote, ...]
    devices: tuple[DeviceSummary, ...]
    step: Step | None
    regions: tuple[Region, ...]
    estimates: tuple[Estimate, ...]
    blockers: tuple[Blocker, ...]
    hazards: tuple[Hazard, ...]
    findings: tuple[Finding, ...]
    verdict: Verdict
    lines: tuple[LineRow, ...] = ()
    timeline: TimelineCut | None = None
    series: tuple[Series, ...] = ()
    kernels: tuple[KernelRow, ...] = ()
    syncs: tuple[Blocker, ...] = ()  # every synchronising call per step by line, blocking or not

    def region(self, region_id: str) -> Region:
        """The region with this id. Raises KeyError."""
        for region in self.regions:
            if region.id == region_id:
                return region
        raise KeyError(region_id)


# --- what a run says ---------------------------------------------------------------------------------------------------


class Manifest(Value, frozen=True, kw_only=True):
    """manifest.json: what ran and where. Never environment variables, host or user names; home paths are shortened."""

    format: int = 1
    tool_version: str
    command: tuple[str, ...]
    script: str
    created_at: str  # ISO 8601, UTC
    python_version: str = ""
    torch_version: str = ""
    cuda_version: str = ""
    driver_version: str = ""
    gpu_names: tuple[str, ...] = ()
    gpu_clock_mhz: int | None = None
    cpu_count: int = 0
    options: dict[str, str] = {}
    source_files: dict[str, str] = {}  # relative path -> text of the instrumented files
    passes: tuple[str, ...] = ()  # passes finished so far
    notes: tuple[str, ...] = ()  # what was not run, and why


class OptimizerFacts(Value, frozen=True, kw_only=True):
    """An optimizer that stepped. implementation: "foreach", "fused" or "single" (one parameter after the other)."""

    kind: str
    implementation: str
    capturable: bool
    parameter_count: int  # with a gradient


class Clock(Value, frozen=True, kw_only=True):
    """clock.json: the unprofiled pass. One sample a step or occurrence, warm-up dropped."""

    format: int = 1
    step_label: str
    step_how: str
    step_location: SourceSpan | None = None
    warmup_count: int = 0
    host_step: Measurement
    device_step: Measurement | None = None  # CUDA events
    regions: dict[str, Measurement] = {}  # mark text -> host time of each occurrence
    device_regions: dict[str, Measurement] = {}
    range_cost_ns: int = 0  # of one instrumented range, measured in the same process
    optimizers: tuple[OptimizerFacts, ...] = ()
    peak_memory_bytes: int = 0
    wall_ns: int = 0


class Calibration(Value, frozen=True, kw_only=True):
    """calibration.json: constants of one machine. `residual_ratio` says how well the two-size fits held."""

    format: int = 1
    gpu_name: str
    driver_version: str
    torch_version: str
    launch_cpu_ns: float
    launch_to_start_ns: float
    node_gap_ns: float
    graph_launch_cpu_ns: float
    graph_launch_cpu_per_node_ns: float
    copy_fixed_ns: float
    copy_per_byte_ns: float
    instantiate_per_node_ns: float
    range_ns: float
    profiler_per_op_ns: float
    residual_ratio: float
    node_gap_small_ns: float = 0.0  # between kernels of one block each; 0 where it was not measured. The estimate does not use it
    replay_span_ns: float = 0.0  # host ns of one replay as `cgadvisor verify` makes it; 0 where it was not measured
    measured_at: str = ""


class Fix(Value, frozen=True, kw_only=True):
    """A mechanical change tried on the user's behalf; `diff` is a unified diff of the user's lines."""

    id: str
    title: str
    diff: str = ""


class Equality(Value, frozen=True, kw_only=True):
    """Whether state was unchanged at step boundaries, graph child against eager child."""

    outcome: EqualityOutcome
    step_count: int = 0
    tensor_count: int = 0
    first_step: int | None = None
    first_name: str = ""
    max_abs_difference: float = 0.0
    noise_max_abs_difference: float = 0.0  # of the two eager runs
    python_values: tuple[str, ...] = ()  # names of Python values that differ
    hazard: Hazard | None = None


class Timing(Value, frozen=True, kw_only=True):
    """Unprofiled step times, raw. Intervals are 95 % bootstrap intervals of the ratio of medians."""

    eager: Measurement
    graph: Measurement
    eager_again: Measurement | None = None
    region_eager: Measurement | None = None
    region_graph: Measurement | None = None
    speedup_ratio: float = 1.0
    speedup_low_ratio: float = 1.0
    speedup_high_ratio: float = 1.0
    region_speedup_ratio: float | None = None
    noise_ratio: float = 0.0  # A/A: |median difference| / median


class Attempt(Value, frozen=True, kw_only=True):
    """One capture of one region, with or without fixes, in its own process."""

    id: str
    region_label: str
    outcome: Outcome
    message: str
    region_id: str | None = None
    location: SourceSpan | None = None
    strategy: str = "in_place"
    fixes: tuple[Fix, ...] = ()
    equality: Equality | None = None
    timing: Timing | None = None
    replay_count: int = 0
    fallback_count: int = 0
    signature_count: int = 0
    node_count: int | None = None
    traced_item_count: int | None = None
    pool_bytes: int | None = None
    capture_ns: int | None = None
    instantiate_ns: int | None = None
    break_even_replays: int | None = None
    blocker: Blocker | None = None
    hazards: tuple[Hazard, ...] = ()
    side_effects: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()  # "SGD lr = 0.01": Python numbers the graph keeps as they were when it was captured
    wall_ns: int = 0
    log: str = ""  # file in the run folder


class Prediction(Value, frozen=True, kw_only=True):
    """What was expected of one attempt, written down before it was made. `estimate` is None where the trace did not tell."""

    region_label: str
    fixes: tuple[str, ...]  # ids
    estimate: Estimate | None


class Predictions(Value, frozen=True, kw_only=True):
    """predictions.json: one for each attempt of a verification, in order. No code that verifies reads it."""

    format: int = 1
    predictions: tuple[Prediction, ...] = ()

    def of(self, attempt: Attempt) -> Estimate | None:
        """The estimate made before this attempt, None when there is none."""
        fixes = {fix.id for fix in attempt.fixes}
        for one in self.predictions:
            if one.region_label == attempt.region_label and set(one.fixes) == fixes:
                return one.estimate
        return None


class Verification(Value, frozen=True, kw_only=True):
    """verification.json: every attempt, what was left untried, and where the time went."""

    format: int = 1
    attempts: tuple[Attempt, ...]
    untried: tuple[str, ...] = ()
    budget_ns: int = 0
    wall_ns: int = 0
    notes: tuple[str, ...] = ()

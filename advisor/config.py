"""`cgadvisor.toml`: one file, one frozen value, every default visible here. An unknown key is an error."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from advisor.errors import UsageError

FILE_NAME: Final = "cgadvisor.toml"


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One `[[gate.budget]]`: a limit on a metric, over the whole run or one region."""

    metric: str
    region: str | None = None
    max: float | None = None
    min: float | None = None
    max_increase: str | float | None = None  # "2%", or a number in the metric's unit, against the baseline
    warn: float | str | None = None  # the softer limit of the same kind: reached, it warns instead of failing


class GateConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[gate]`: what `cgadvisor gate` judges by."""

    min_effect_ratio: float = 0.05
    min_effect_ns: int = 5_000  # one launch
    alpha: float = 0.001
    process_alpha: float = 0.01  # of the test on process medians, when a side has several processes
    max_unseen_ratio: float = 0.30  # times too noisy to rule out this slow-down are inconclusive, not a pass
    times: bool = True  # judge unprofiled step times at all
    profiled_times: bool = False  # judge step times under a profiler too
    allow_missing: tuple[str, ...] = ()  # globs of what the run may lack: "verification", "region:encoder*", "times:*"
    allow_different: tuple[str, ...] = ()  # fields of the environment that may differ: "driver_version"
    inconclusive: Literal["report", "fail", "pass"] = "report"  # report: exit code 5
    budget: tuple[Budget, ...] = ()


class AnalyzeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[analyze]`: thresholds of the verdict."""

    min_saved_ratio: float = 0.05  # below this share of the step a graph is not worth it
    min_items: int = 4  # a region of fewer items per occurrence is not worth a graph
    long_gap_ns: int = 1_000_000  # a longer gap is not a launch gap's usual size
    busy_ratio_gpu_bound: float = 0.95


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The whole file."""

    analyze: AnalyzeConfig = msgspec.field(default_factory=AnalyzeConfig)
    gate: GateConfig = msgspec.field(default_factory=GateConfig)


def load_config(path: Path | None) -> Config:
    """The configuration in `path`; defaults when it is None. Raises UsageError naming file and key."""
    if path is None:
        return Config()
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsageError(f"{path}: no such configuration file") from error
    # ValueError: TOML that is wrong, bytes that are no UTF-8, and an integer of more digits than Python reads.
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not readable as TOML: {error}") from error
    _reject_unknown(raw, str(path))
    try:
        config = msgspec.convert(raw, Config, strict=True)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}") from error
    for key, value, low, high in _bounded(config):
        if not low <= value <= high:  # false of nan, too
            raise UsageError(f"{path}: {key} is {value:g}; expected {low:g} to {high:g}")
    return config


def _bounded(config: Config) -> Iterator[tuple[str, float, float, float]]:
    """(key, value, least, most). TOML can say nan, inf and -1; a limit of nan is never broken and every run passes it."""
    gate, largest = config.gate, 1e15
    for key in ("min_effect_ratio", "max_unseen_ratio"):
        yield f"gate.{key}", getattr(gate, key), 0.0, largest
    yield "gate.min_effect_ns", gate.min_effect_ns, 0.0, largest
    for key in ("alpha", "process_alpha"):
        yield f"gate.{key}", getattr(gate, key), 0.0, 1.0
    for number, budget in enumerate(gate.budget, 1):
        for key in ("max", "min", "max_increase", "warn"):
            value = getattr(budget, key)
            if isinstance(value, float):
                yield f"gate.budget {number} {key}", value, -largest, largest


def _reject_unknown(raw: dict[str, Any], where: str) -> None:
    """Raise UsageError with the nearest name for the first key the schema does not have."""
    sections: dict[str, type[msgspec.Struct]] = {"analyze": AnalyzeConfig, "gate": GateConfig}
    _check_keys(raw, list(sections), where, "")
    for section, kind in sections.items():
        value = raw.get(section, {})
        if isinstance(value, dict):
            _check_keys(value, list(kind.__struct_fields__), where, f"{section}.")
            budgets = value.get("budget") if section == "gate" else None
            for budget in budgets if isinstance(budgets, list) else []:
                if isinstance(budget, dict):
                    _check_keys(budget, list(Budget.__struct_fields__), where, "gate.budget.")


def _check_keys(raw: dict[str, Any], known: list[str], where: str, prefix: str) -> None:
    for key in raw:
        if key not in known:
            near = get_close_matches(key, known, 1)
            hint = f"; did you mean {prefix}{near[0]}?" if near else f"; known: {', '.join(known)}"
            raise UsageError(f"{where}: unknown key {prefix}{_shown(key)}{hint}")


def _shown(key: str) -> str:
    """A key as it stands in the file; a quoted one may hold line breaks, and an error is one line."""
    return key if key.isprintable() else repr(key)

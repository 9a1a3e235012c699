"""cgadvisor: would CUDA graphs help this PyTorch script, where, how much, what stops them, is the result still right?

    timeline = advisor.load("trace.json.gz")      # Timeline: items, launches, ranges, gaps as pandas dataframes
    analysis = advisor.analyze(timeline)          # Analysis: plain values, what findings.json holds

    with advisor.region("decode"):                # names a region for `cgadvisor profile`; a no-op otherwise
        ...

Importing this package is cheap: it imports neither pandas nor torch until a function needs them.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from advisor.version import __version__

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from advisor.config import Config
    from advisor.model import Analysis
    from advisor.timeline import Timeline

__all__ = ["__version__", "analyze", "load", "region"]

F = TypeVar("F", bound=Callable[..., Any])


def load(path: str | os.PathLike[str], *, device: int | None = None) -> Timeline:
    """The timeline of a recorded trace: a Kineto .json[.gz], an Nsight .sqlite or .nsys-rep, or a folder of ranks.

    `device` keeps one device only. Raises `advisor.errors.TraceError` when there is nothing to read and `UsageError` when
    the device has no items.
    """
    from advisor.metrics import gaps
    from advisor.sources import load as load_trace

    timeline = load_trace(path)
    timeline = timeline if device is None else timeline.only_device(device)
    return timeline.with_gaps(gaps(timeline))


def analyze(timeline: Timeline, *, config: Config | None = None) -> Analysis:
    """Findings of a timeline: quality, idle by cause, regions, estimates and the verdict."""
    from advisor.advise import analyze as analyze_timeline

    return analyze_timeline(timeline, config=config)


@overload
def region(name: str) -> Region: ...
@overload
def region(name: F) -> F: ...
def region(name: str | Callable[..., Any]) -> Any:
    """Name a region: `with advisor.region("decode"):`, `@advisor.region("decode")` or `@advisor.region`.

    Does nothing unless `cgadvisor profile` runs the script.
    """
    if isinstance(name, str):
        return Region(name)
    return Region(getattr(name, "__qualname__", "region"))(name)


class Region:
    """A named region, as a context manager (again and again, nested too) and as a decorator."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: list[AbstractContextManager[None]] = []

    def __enter__(self) -> None:
        if os.environ.get("CGADVISOR") == "1":
            from advisor.workload.mark import user_region

            made = user_region(self._name)
            made.__enter__()
            self._open.append(made)

    def __exit__(self, *exc: Any) -> None:
        if self._open:
            self._open.pop().__exit__(*exc)

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            with Region(self._name):
                return function(*args, **kwargs)

        return cast(F, named)

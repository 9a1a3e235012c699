"""cgadvisor: would CUDA graphs help this PyTorch script, where, how much, what stops them, is the result still right?

    timeline = advisor.load("trace.json.gz")      # Timeline: items, launches, ranges, gaps as pandas dataframes
    analysis = advisor.analyze(timeline)          # Analysis: plain values, what findings.json holds

    with advisor.region("decode"):                # names a region for `cgadvisor profile`; a no-op otherwise
        ...

Importing this package is cheap: it imports neither pandas nor torch until a function needs them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

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


class region:  # lower case: it reads as a statement, `with advisor.region("decode"):`
    """Name a region, as a context manager or a decorator. Does nothing unless `cgadvisor profile` runs the script."""

    def __init__(self, name: str | F) -> None:
        self._function = None if isinstance(name, str) else name
        self._name = name if isinstance(name, str) else getattr(name, "__qualname__", "region")
        self._open: AbstractContextManager[None] | None = None

    def __enter__(self) -> None:
        if os.environ.get("CGADVISOR") == "1":
            from advisor.workload.mark import user_region

            self._open = user_region(self._name)
            self._open.__enter__()

    def __exit__(self, *exc: Any) -> None:
        if self._open is not None:
            self._open.__exit__(*exc)
            self._open = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is not None:
            with region(self._name):
                return self._function(*args, **kwargs)
        return _named(self._name, args[0])


def _named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    import functools

    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with region(name):
            return function(*args, **kwargs)

    return wrapper

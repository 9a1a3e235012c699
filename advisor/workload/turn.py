"""One measurement at a time: processes that would time the same GPUs take turns, through the lock of a file.

Two gates on one runner, or the parallel tests of a suite, would slow each other's steps and report it as the script's own
time. Starting Python, importing torch and building the model needs no turn. The lock ends with the process that holds it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

LIMIT_S: Final = 300.0  # then the measurement is made all the same: late and perhaps disturbed is better than never
CROWDED: Final = "measured beside others that would not give the GPU: times may be too long"
_POLL_S: Final = 0.02


class Turn:
    """The right to measure. Not held at first; `take` may be called again and does nothing while it is held."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or lock_path()
        self._descriptor = -1
        self._gave_up = False

    @property
    def held(self) -> bool:
        return self._descriptor >= 0

    @property
    def is_crowded(self) -> bool:
        """Whether the last `take` gave up: what is measured now may be disturbed, and should say so (`CROWDED`)."""
        return self._gave_up

    def take(self, waiting: Callable[[], None] = lambda: None, limit_s: float = LIMIT_S) -> float:
        """Wait for the turn, calling `waiting` now and then; the seconds waited. Without the turn after `limit_s`."""
        began = time.monotonic()
        if self.held:
            return 0.0
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:  # a read-only or foreign temporary folder: nobody to take turns with
            return 0.0
        while not _locked(descriptor):
            if time.monotonic() - began > limit_s:
                os.close(descriptor)
                self._gave_up = True
                return time.monotonic() - began
            waiting()
            time.sleep(_POLL_S)
        self._descriptor, self._gave_up = descriptor, False
        return time.monotonic() - began

    def give(self) -> None:
        """Let the next one measure. Processes forked since keep the file open, so it is unlocked and not only closed."""
        if self.held:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = -1


def lock_path() -> Path:
    """One file for each user and choice of GPUs."""
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    name = hashlib.sha256(devices.encode()).hexdigest()[:8]
    return Path(tempfile.gettempdir(), f"cgadvisor-{os.getuid()}-{name}.lock")


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

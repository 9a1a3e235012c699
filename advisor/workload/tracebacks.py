"""The tool's frames taken out of the tracebacks of the user's errors, and where in the user's files one was raised."""

from __future__ import annotations

import os
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_TOOL_FOLDER: Final = str(Path(__file__).resolve().parent)


def related(error: BaseException) -> Iterator[BaseException]:
    """`error`, all it was raised from or while handling, and all that its groups hold; each once."""
    seen: set[int] = set()
    pending: list[BaseException | None] = [error]
    while pending:
        one = pending.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        yield one
        pending += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            pending += list(one.exceptions)


def strip_frames(error: BaseException) -> None:
    """Take the tool's frames out of the traceback of `error` and of all it was raised from."""
    for one in related(error):
        one.__traceback__ = _users_frames(one.__traceback__)


def _users_frames(traceback: types.TracebackType | None) -> types.TracebackType | None:
    kept: list[types.TracebackType] = []
    at = traceback
    while at is not None:
        if not is_tool_file(at.tb_frame.f_code.co_filename):
            kept.append(at)
        at = at.tb_next
    for one, following in zip(kept, [*kept[1:], None], strict=False):
        one.tb_next = following
    return kept[0] if kept else None


def is_tool_file(filename: str) -> bool:
    """Whether code of this file is the tool's own, to be hidden from the user's tracebacks."""
    return filename.startswith(_TOOL_FOLDER)


def where_failed(error: BaseException, root: str) -> str:
    """`file:line` of the innermost frame in the user's files under `root`, "" when none is."""
    found, at = "", error.__traceback__
    while at is not None:
        name = at.tb_frame.f_code.co_filename
        if name.startswith(root + os.sep) and "site-packages" not in name:
            found = f"{os.path.relpath(name, root)}:{at.tb_lineno}"
        at = at.tb_next
    return found


def described(error: BaseException) -> str:
    """`Type: message`, its first line. A message that cannot be made or encoded does not matter more than the error."""
    try:
        message = str(error)
    except Exception:  # the user's own __str__: whatever it raises
        message = "<its message could not be made>"
    text = f"{type(error).__name__}: {message}".split("\n")[0]
    return text.encode("utf-8", "backslashreplace").decode("utf-8")

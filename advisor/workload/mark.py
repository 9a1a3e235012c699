"""The object the instrumented code calls, and the ranges it emits: the same text to NVTX and to the torch profiler.

`MARKS` is one object of replaceable functions, all of them doing nothing until a pass installs its own: `begin`/`close`
around a statement; `loop`, `item`, `next`, `done`, `end` around and inside a loop; `tick`/`untick` for a loop that
suspends. Torch is looked up only when a pass emits ranges.
"""

from __future__ import annotations

import contextlib
import os
import threading
import zlib
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Final

from advisor.marks import KINDS, NVTX_DOMAIN, encode
from advisor.workload.instrument import Construct

Handler = Callable[[int], None]
METHODS: Final = ("begin", "close", "loop", "item", "next", "done", "end", "tick", "untick")


def _nothing(_identity: int) -> None:
    """What a mark does while no pass listens."""


class Marks:
    """Functions of a construct's id, swapped by the passes. Pickles to the idle object of the other process."""

    __slots__ = METHODS

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Stop listening; also in forked workers."""
        self.install(dict.fromkeys(METHODS, _nothing))

    def install(self, handlers: Mapping[str, Handler]) -> None:
        """Replace some of the functions."""
        for name, handler in handlers.items():
            setattr(self, name, constant(handler))

    def __reduce__(self) -> tuple[Callable[[], Marks], tuple[()]]:
        return _marks, ()


def _marks() -> Marks:
    return MARKS


def constant(handler: Handler) -> Handler:
    """Tell torch.compile to neither trace nor stop at `handler`: inside a compiled function a mark does nothing.

    This is what torch.compiler.assume_constant_result sets; setting it here needs no torch. A bound method carries it
    through a plain function.
    """
    function = handler if not hasattr(handler, "__self__") else _unbound(handler)
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def _unbound(method: Handler) -> Handler:
    def call(identity: int) -> None:
        method(identity)

    return call


_nothing._dynamo_marked_constant = True  # type: ignore[attr-defined]
MARKS: Final = Marks()
os.register_at_fork(after_in_child=MARKS.reset)


# --- user regions ------------------------------------------------------------------------------------------------------

RegionFactory = Callable[[str], AbstractContextManager[None]]
_region_factory: list[RegionFactory] = []


def on_region(factory: RegionFactory | None) -> None:
    """Set what `advisor.region(name)` opens in this process; None: nothing."""
    _region_factory[:] = [] if factory is None else [factory]


def user_region(name: str) -> AbstractContextManager[None]:
    """The context manager behind `advisor.region(name)`; does nothing unless a pass listens."""
    return _region_factory[0](name) if _region_factory else contextlib.nullcontext()


os.register_at_fork(after_in_child=_region_factory.clear)


# --- emission ----------------------------------------------------------------------------------------------------------


class Range:
    """One range of the program with everything that can be prepared: its text, NVTX attributes, profiler handles."""

    __slots__ = ("_make_record", "attributes", "free", "text")

    def __init__(self, text: str, attributes: Any, make_record: Callable[[str], Any] | None) -> None:
        self.text = text
        self.attributes = attributes
        self._make_record = make_record
        self.free: list[Any] = []  # handles not in use: one more is made per level of recursion

    def record(self) -> Any:
        """A profiler handle to enter, None when no profiler listens."""
        if self.free:
            return self.free.pop()
        return None if self._make_record is None else self._make_record(self.text)


class _Stack(threading.local):
    """Open ranges of one thread, outermost first: (range, profiler handle)."""

    def __init__(self) -> None:
        self.open: list[tuple[Range, Any]] = []


class Emitter:
    """Opens and closes ranges on the calling thread, in NVTX and in the profiler alike.

    `wanted(text)` decides once per construct whether it is emitted. Closing a range closes what was left open inside it.
    """

    def __init__(
        self, constructs: Mapping[int, Construct], wanted: Callable[[Construct, str], bool], *, record: bool
    ) -> None:
        self.muted = False  # marks are looked up and prepared, but nothing is opened
        self._constructs = constructs
        self._wanted = wanted
        self._make_record = record_factory() if record else None
        self._domain, self._attributes = _nvtx()
        self._stack = _Stack()
        self._ranges: dict[tuple[str, int], Range | None] = {}
        self._named: dict[tuple[str, str], Range] = {}

    def handlers(self) -> dict[str, Handler]:
        """The functions to install in `MARKS`."""
        return {name: getattr(self, name) for name in METHODS if name not in ("tick", "untick")}

    # statements

    def begin(self, identity: int) -> None:
        made = self._range("stmt", identity)
        if made is not None:
            self.push(made)

    def close(self, identity: int) -> None:
        made = self._range("stmt", identity)
        if made is not None:
            self.pop(made)

    # loops

    def loop(self, identity: int) -> None:
        self._push_kinds(identity, "loop", "iter", "data")

    def item(self, identity: int) -> None:
        data = self._range("data", identity)
        if data is not None and self._stack.open and self._stack.open[-1][0] is data:
            self.pop(data)

    def next(self, identity: int) -> None:
        if self.done(identity):
            self.open_iteration(identity)

    def open_iteration(self, identity: int) -> None:
        """Open the range of one iteration, and within it that of the wait for its item."""
        self._push_kinds(identity, "iter", "data")

    def in_iteration(self, identity: int) -> bool:
        """Whether an iteration of the innermost open loop `identity` is open."""
        turn, loop = self._range("iter", identity), self._range("loop", identity)
        for one, _ in reversed(self._stack.open):
            if one is turn or one is loop:
                return one is turn
        return False

    @property
    def depth(self) -> int:
        """How many ranges are open on this thread."""
        return len(self._stack.open)

    def done(self, identity: int) -> bool:
        """Close the iteration; whether it was open."""
        made = self._range("iter", identity)
        return made is not None and self.pop(made)

    def end(self, identity: int) -> None:
        made = self._range("loop", identity)
        if made is not None:
            self.pop(made)

    def _push_kinds(self, identity: int, *kinds: str) -> None:
        for kind in kinds:
            made = self._range(kind, identity)
            if made is not None:
                self.push(made)

    # the ranges themselves

    def named(self, kind: str, label: str) -> Range:
        """The range of something without a place in the source: a module, an optimizer, a user's region."""
        found = self._named.get((kind, label))
        if found is None:
            identity = zlib.crc32(f"{kind}:{label}".encode())
            found = self._named[kind, label] = self._make(encode(label, kind, identity), kind, identity)
        return found

    def push(self, made: Range) -> None:
        if self.muted:
            return
        record = made.record()
        if record is not None:
            record.__enter__()
        if self._domain is not None:
            self._domain.push_range(made.attributes)
        self._stack.open.append((made, record))

    def pop(self, made: Range) -> bool:
        """Close `made` and all that is open inside it; False when it is not open (it began before the recording)."""
        stack = self._stack.open
        if not stack or (stack[-1][0] is not made and all(one is not made for one, _ in stack)):
            return False
        while True:
            one, record = stack.pop()
            if self._domain is not None:
                self._domain.pop_range()
            if record is not None:
                record.__exit__(None, None, None)
                one.free.append(record)
            if one is made:
                return True

    def close_all(self) -> None:
        """Close everything open on this thread: the recording ends here."""
        if self._stack.open:
            self.pop(self._stack.open[0][0])

    def _range(self, kind: str, identity: int) -> Range | None:
        key = (kind, identity)
        try:
            return self._ranges[key]
        except KeyError:
            construct = self._constructs[identity]
            emit = not (kind == "data" and not construct.waits) and self._wanted(construct, kind)
            made = self._make(construct.text(kind), kind, identity) if emit else None
            self._ranges[key] = made
            return made

    def _make(self, text: str, kind: str, identity: int) -> Range:
        attributes = None if self._attributes is None else self._attributes(text, kind, identity)
        return Range(text, attributes, self._make_record)


def _nvtx() -> tuple[Any, Callable[[str, str, int], Any] | None]:
    """The tool's NVTX domain and a maker of event attributes; (None, None) where no NVTX tool is attached."""
    import nvtx

    domain = nvtx.get_domain(NVTX_DOMAIN)
    if not hasattr(domain, "push_range") or type(domain).__name__ == "DummyDomain":
        return None, None

    def attributes(text: str, kind: str, identity: int) -> Any:
        color = _COLORS[KINDS.index(kind) % len(_COLORS)]
        return domain.get_event_attributes(message=text, color=color, category=kind, payload=identity)

    return domain, attributes


_COLORS: Final = ("blue", "green", "yellow", "purple", "orange", "red", "rapids")


def record_factory() -> Callable[[str], Any]:
    """Makes the cheapest re-enterable handle this torch has for a profiler range."""
    import torch

    fast = getattr(torch._C._profiler, "_RecordFunctionFast", None)
    if fast is not None:
        make: Callable[[str], Any] = fast
        return make
    return torch.autograd.profiler.record_function

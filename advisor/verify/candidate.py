"""A span to try, and the user's files it lies in."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from advisor.workload.verify_job import FixSpec


@dataclass(frozen=True)
class Candidate:
    """One span to capture, with the fixes to apply. `module` names an nn.Module instead of lines."""

    file: str
    first: int
    last: int
    fixes: tuple[FixSpec, ...] = ()
    module: str = ""
    weight: int = 0
    note: str = ""

    @property
    def label(self) -> str:
        if self.module:
            return f"module {self.module}"
        lines = f"{self.first}" if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.file}:{lines}"

    @property
    def key(self) -> tuple[object, ...]:
        return self.file, self.first, self.last, self.module, tuple((fix.id, fix.line) for fix in self.fixes)

    def fixed(self, *fixes: FixSpec) -> Candidate:
        known = {(fix.id, fix.line) for fix in self.fixes}
        return replace(self, fixes=(*self.fixes, *(fix for fix in fixes if (fix.id, fix.line) not in known)))


@dataclass
class Sources:
    """The user's files: label (relative to the script's folder) -> text. Trees are parsed once."""

    texts: dict[str, str]
    _trees: dict[str, ast.Module] = field(default_factory=dict)

    def tree(self, file: str) -> ast.Module:
        """The syntax tree of a file. Raises KeyError for an unknown one."""
        if file not in self._trees:
            self._trees[file] = ast.parse(self.texts[file])
        return self._trees[file]

    def functions(self, name: str) -> Iterator[tuple[str, ast.FunctionDef]]:
        """Functions and methods of this name, in any of the files; of a class its `forward`."""
        for file in self.texts:
            for node in ast.walk(self.tree(file)):
                if isinstance(node, ast.FunctionDef) and node.name == name:
                    yield file, node


def unique(found: list[Candidate]) -> list[Candidate]:
    """Without repeats of the same span and fixes, the last one of them kept in the place of the first."""
    return list({candidate.key: candidate for candidate in found}.values())

"""Signed terms that add up exactly to a saving: what a person reads to check an estimate by hand."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.model import NumberKind, Term


class Ledger:
    """Terms in the order they are added. Zero terms are left out, so a printed term always says something."""

    def __init__(self, kind: NumberKind = NumberKind.ESTIMATED) -> None:
        self._kind = kind
        self._terms: list[Term] = []

    def add(self, term_id: str, label: str, ns: float, note: str = "") -> None:
        """Add a signed contribution: positive saves time. Rounded to whole ns here, once."""
        if round(ns):
            self._terms.append(Term(id=term_id, label=label, ns=round(ns), kind=self._kind, note=note))

    @property
    def total_ns(self) -> int:
        return sum(term.ns for term in self._terms)

    def settle(self, saved_ns: int, term_id: str, label: str, note: str = "") -> tuple[Term, ...]:
        """The terms with one more that makes them add up to `saved_ns`."""
        self.add(term_id, label, saved_ns - self.total_ns, note)
        return tuple(self._terms)


def merged(terms: Iterable[Term]) -> dict[str, int]:
    """Sum of ns by term id."""
    sums: dict[str, int] = {}
    for term in terms:
        sums[term.id] = sums.get(term.id, 0) + term.ns
    return sums

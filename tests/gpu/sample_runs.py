"""Verifies samples end to end, as `cgadvisor verify RUN` does: set up side by side, measured one at a time."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from advisor.bundle import Bundle
from advisor.model import Clock, Manifest, Measurement, SourceSpan, Verification
from advisor.verify import Options, run
from advisor.verify.children import Script
from advisor.verify.search import Limits

SAMPLES = Path(__file__).parents[2] / "samples"


@dataclass(frozen=True)
class Sample:
    """One sample script, its arguments, and the file and first words of its hot loop."""

    name: str
    loop: str
    argv: tuple[str, ...] = ()
    file: str = ""
    region: str = ""
    strategies: tuple[str, ...] = ()
    limits: Limits = field(default_factory=lambda: Limits(budget_s=60.0, max_attempts=4, parallel=5, timeout_s=60.0))

    @property
    def key(self) -> str:
        return " ".join((self.name, *self.argv))


def verify_samples(samples: list[Sample], folder: Path, side_by_side: int = 3) -> dict[str, Verification]:
    """The verification of every sample, by its key."""
    with ThreadPoolExecutor(max_workers=side_by_side) as pool:
        found = pool.map(lambda sample: _verify(sample, folder / sample.key.replace(" ", "_")), samples)
    return {sample.key: verification for sample, verification in zip(samples, found, strict=True)}


def _verify(sample: Sample, folder: Path) -> Verification:
    names = {f"{sample.name}.py", "models.py", sample.file or f"{sample.name}.py"}
    texts = {name: (SAMPLES / name).read_text(encoding="utf-8") for name in sorted(names)}
    file = sample.file or f"{sample.name}.py"
    line = next(i for i, text in enumerate(texts[file].split("\n"), start=1) if text.strip().startswith(sample.loop))
    bundle = Bundle.create(folder)
    bundle.save(
        Manifest(tool_version="test", command=(), script=f"{sample.name}.py", created_at="", source_files=texts)
    )
    place = SourceSpan(file=file, first_line=line, last_line=line)
    bundle.save(Clock(step_label="", step_how="", step_location=place, host_step=Measurement(samples_ns=())))
    script = Script(str(SAMPLES / f"{sample.name}.py"), sample.argv, cwd=str(SAMPLES))
    regions = (sample.region,) if sample.region else ()
    return run(bundle, Options(script=script, regions=regions, limits=sample.limits, strategies=sample.strategies))

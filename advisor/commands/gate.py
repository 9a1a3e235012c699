"""`cgadvisor gate`: judge a run against a baseline and budgets; the exit code is the verdict.

0 pass (warnings included)   1 fail   2 usage   3 bad input   5 inconclusive or not comparable
--run: 4 needs a GPU or torch   6 the script failed
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from advisor.bundle import write_atomically
from advisor.commands.gate_run import judge_script
from advisor.commands.gate_sides import Options, base_path, side
from advisor.config import FILE_NAME, Config, load_config
from advisor.errors import BundleError, UsageError
from advisor.gate import GateVerdict, judge
from advisor.gate.outputs import github, junit, markdown, sarif, terminal
from advisor.version import __version__

FORMATS: Final = ("text", "json", "md", "junit", "sarif")


def run(options: Options) -> int:
    """Judge, print, write the files asked for. Returns the exit code; raises AdvisorError."""
    if options.format not in FORMATS:
        raise UsageError(f"--format {options.format}: expected one of {', '.join(FORMATS)}")
    for path in options.files.values():  # before a measurement of minutes, not after it
        if not path.absolute().parent.is_dir():
            raise BundleError(f"{path}: no such folder {path.parent}")
    config = _config(options)
    verdict = msgspec.structs.replace(_verdict(options, config), tool_version=__version__)
    publish(verdict, options, os.environ)
    return verdict.exit_code


def _verdict(options: Options, config: Config) -> GateVerdict:
    if options.script is not None:
        if options.run is not None:
            raise UsageError("give either a RUN folder or --run SCRIPT, not both")
        return judge_script(options, config)
    if options.run is None:
        raise UsageError("nothing to judge: give a run folder, a findings.json, a trace, or --run SCRIPT")
    if options.script_args:
        raise UsageError(f"one run is judged, and {options.script_args[0]!r} is one more; words belong to --run SCRIPT")
    base = base_path(options)
    return judge(side(options.run, config), side(base, config) if base else None, config.gate)


def _config(options: Options) -> Config:
    here = Path(FILE_NAME)
    config = load_config(options.config or (here if here.exists() else None))
    if not options.allow_missing:
        return config
    allowed = (*config.gate.allow_missing, *options.allow_missing)
    return msgspec.structs.replace(config, gate=msgspec.structs.replace(config.gate, allow_missing=allowed))


def publish(verdict: GateVerdict, options: Options, environ: Mapping[str, str]) -> None:
    """Print the verdict, write the files asked for, and tell GitHub Actions when it is the one who runs this."""
    renderers = _renderers(options)
    text = renderers[options.format](verdict)
    on_github = environ.get("GITHUB_ACTIONS") == "true"
    # A machine-readable answer on stdout stays clean; workflow commands are read from either stream.
    if on_github:
        stream = sys.stdout if options.format == "text" else sys.stderr
        stream.write(github.render(verdict, options.source_root))
    if options.format in ("text", "md"):
        sys.stdout.write(text)
    else:  # JSON and XML are UTF-8 whatever the console is; an escape of the console's would break them
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
    for kind, path in options.files.items():
        write_atomically(path, renderers[kind](verdict).encode())
    if environ.get("GITHUB_STEP_SUMMARY"):
        _append(Path(environ["GITHUB_STEP_SUMMARY"]), markdown.render(verdict))
    if on_github and environ.get("GITHUB_OUTPUT"):
        _append(Path(environ["GITHUB_OUTPUT"]), github.outputs(verdict))


def _renderers(options: Options) -> dict[str, Callable[[GateVerdict], str]]:
    return {
        "text": lambda verdict: terminal.render(verdict, options.verbose),
        "json": lambda verdict: msgspec.json.format(msgspec.json.encode(verdict), indent=1).decode() + "\n",
        "md": markdown.render,
        "junit": junit.render,
        "sarif": lambda verdict: sarif.render(verdict, options.source_root),
    }


def _append(path: Path, text: str) -> None:
    """What GitHub is told besides the verdict. That it cannot be told changes no verdict, nor the exit code."""
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        print(f"cgadvisor: {path}: cannot write: {error.strerror}", file=sys.stderr)

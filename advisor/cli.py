"""The command line: one short function a command, one error handler. Heavy imports happen inside the commands.

No `from __future__ import annotations` here: typer would have to evaluate every option's text again at each start.
"""

import io
import signal
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer

from advisor.errors import EXIT_DEFECT, EXIT_OK, EXIT_USAGE, AdvisorError

app = typer.Typer(
    name="cgadvisor",
    help="Would CUDA graphs help this PyTorch script, where, how much, what stops them, and is the result still right?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _version(wanted: bool) -> None:
    if wanted:
        from advisor import __version__

        typer.echo(f"cgadvisor {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options before the command."""


@app.command()
def analyze(
    trace: Annotated[
        Path, typer.Argument(help="A Kineto .json[.gz], Nsight .sqlite or .nsys-rep, or a folder of ranks.")
    ],
    out: Annotated[Path | None, typer.Option(help="Run folder to write; default cgadvisor-runs/<trace name>.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON and nothing else.")] = False,
    export: Annotated[Path | None, typer.Option(help="Also write the dataframes as Parquet into this folder.")] = None,
    device: Annotated[int | None, typer.Option(help="Analyse this device only.")] = None,
    window: Annotated[
        str | None, typer.Option(help="A:B, seconds or with unit (10ms:1.2s) from the trace start.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="Show this region (id, label or glob) in detail.")] = None,
    config: Annotated[Path | None, typer.Option(help="A cgadvisor.toml.")] = None,
    open_report: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Analyse a recorded trace: findings in the terminal, findings.json and report.html in a run folder."""
    from advisor.commands import analyze as command

    options = command.Options(trace, out, json, export, device, window, region, config, open_report)
    raise typer.Exit(command.run(options))


@app.command(
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
)
def profile(
    script: Annotated[
        list[str] | None, typer.Argument(help="The script and its own arguments; the tool's options come before it.")
    ] = None,
    module: Annotated[
        str | None, typer.Option("-m", help="Run this module instead of a script, as python -m does.")
    ] = None,
    steps: Annotated[int, typer.Option(min=3, help="Steps to record in each pass.")] = 30,
    warmup: Annotated[int, typer.Option(min=1, help="Steps to drop before.")] = 10,
    step_at: Annotated[
        str, typer.Option(help="What a step is: FILE.py:LINE of a loop, optimizer, module:NAME or range:NAME.")
    ] = "",
    instrument: Annotated[list[str] | None, typer.Option(help="Also name the lines of this installed package.")] = None,
    regions: Annotated[list[str] | None, typer.Option(help="Only ranges whose label matches this glob.")] = None,
    tracer: Annotated[str, typer.Option(help="torch (torch.profiler) or nsys (Nsight Systems).")] = "torch",
    stacks: Annotated[bool, typer.Option("--stacks/--no-stacks", help="Record Python stacks: dearer.")] = False,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Capture, replay and compare afterwards.")
    ] = True,
    seed: Annotated[int | None, typer.Option(help="Seed python, numpy and torch before the script starts.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder; default cgadvisor-runs/<script>.")] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds one pass may take.")] = 600.0,
    device: Annotated[str, typer.Option(hidden=True)] = "cuda",
) -> None:
    """Run a script, unmodified: clock it, trace it, say whether CUDA graphs would help, and prove it."""
    from advisor.commands import profile as command
    from advisor.errors import UsageError

    words = tuple(script or ())
    if module is None and not words:
        raise UsageError("profile: name a script (cgadvisor profile train.py --lr 3e-4) or a module (-m pkg.train)")
    target, argv = (module, words) if module is not None else (words[0], words[1:])
    packages, globs = tuple(instrument or ()), tuple(regions or ())
    options = command.Options(
        target, argv, module is not None, steps, warmup, step_at, packages, globs, tracer, stacks, verify, seed, out, timeout,
        device,
    )  # fmt: skip
    raise typer.Exit(command.run(options))


@app.command()
def lines(run: Annotated[Path, typer.Argument(help="A run folder of `cgadvisor profile`.")]) -> None:
    """The hot loop line by line: launches, GPU busy and idle time by cause, synchronisations, share of the step."""
    from advisor.commands import lines as command

    raise typer.Exit(command.run(run))


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run folder of `cgadvisor profile` or `analyze`.")],
    format_name: Annotated[str, typer.Option("--format", help="html, md, json or terminal.")] = "html",
    out: Annotated[Path | None, typer.Option(help="File to write; default RUN/report.html, else the terminal.")] = None,
    perfetto: Annotated[
        Path | None, typer.Option(help="Also write the cut step as a trace for ui.perfetto.dev.")
    ] = None,
    open_report: Annotated[bool, typer.Option("--open", help="Open the report in a browser.")] = False,
) -> None:
    """Render a run folder again: the HTML report, Markdown, JSON or the terminal summary."""
    from advisor.commands import report as command

    raise typer.Exit(command.run(command.Options(run, format_name, out, perfetto, open_report)))


@app.command()
def diff(
    a: Annotated[Path, typer.Argument(help="A run folder: before.")],
    b: Annotated[Path, typer.Argument(help="A run folder: after.")],
    format_name: Annotated[str, typer.Option("--format", help="terminal, md or json.")] = "terminal",
    out: Annotated[Path | None, typer.Option(help="File to write; default the terminal.")] = None,
) -> None:
    """Compare two runs: steps, idle time by cause, launches and regions, with what got better and what got worse."""
    from advisor.commands import diff as command

    raise typer.Exit(command.run(a, b, format_name, out))


@app.command()
def verify(
    run: Annotated[Path, typer.Argument(help="A run folder of `cgadvisor profile`.")],
    region: Annotated[
        list[str] | None, typer.Option(help="Only this: a region's id or label, file:first-last, module:PATH. Repeatable.")
    ] = None,
    what_if: Annotated[bool, typer.Option("--what-if/--no-what-if", help="Also try mechanical fixes.")] = True,
    max_attempts: Annotated[int, typer.Option(min=1, help="Captures to try at most.")] = 6,
    budget: Annotated[float, typer.Option(min=1, help="Seconds after which no further attempt starts.")] = 60.0,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds one child process may take.")] = 120.0,
    strategies: Annotated[str, typer.Option(help="Also compare, comma-separated: compile, callables.")] = "",
    json: Annotated[bool, typer.Option("--json", help="Print the verification as JSON and nothing else.")] = False,
) -> None:
    """Capture the regions of a run's script in place, replay them, prove gain and equality."""
    from advisor.commands import verify as command

    names = tuple(name for name in strategies.split(",") if name)
    options = command.Options(run, tuple(region or ()), what_if, max_attempts, budget, timeout, names, json)
    raise typer.Exit(command.run(options))


@app.command()
def gate(
    run: Annotated[
        Path | None, typer.Argument(help="The run to judge: a run folder, a findings.json or a recorded trace.")
    ] = None,
    script_args: Annotated[list[str] | None, typer.Argument(help="After --: arguments of the --run script.")] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="Baseline file, run or trace; with --run also a script. Default cgadvisor-baseline.json."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A cgadvisor.toml; default the one here.")] = None,
    script: Annotated[Path | None, typer.Option("--run", help="Profile this script now and judge the result.")] = None,
    rounds: Annotated[int, typer.Option(min=2, help="Processes a side that --run clocks.")] = 5,
    format_name: Annotated[str, typer.Option("--format", help="text, json, md, junit or sarif.")] = "text",
    junit: Annotated[Path | None, typer.Option(help="Also write JUnit XML here.")] = None,
    sarif: Annotated[Path | None, typer.Option(help="Also write SARIF 2.1.0 here.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Also write Markdown here.")] = None,
    json: Annotated[Path | None, typer.Option(help="Also write JSON here.")] = None,
    allow_missing: Annotated[
        list[str] | None, typer.Option(help="What the run may lack, as a glob: verification, 'region:encoder*'.")
    ] = None,
    source_root: Annotated[str, typer.Option(help="The script's folder, seen from the repository root.")] = "",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="List the checks that passed, too.")] = False,
) -> None:
    """Judge a run against a baseline and budgets: 0 pass, 1 fail, 2 usage, 3 bad input, 5 inconclusive."""
    from advisor.commands import gate as command
    from advisor.commands.gate_sides import Options

    wanted = {"junit": junit, "sarif": sarif, "md": markdown, "json": json}
    files = {name: path for name, path in wanted.items() if path is not None}
    allowed, words = tuple(allow_missing or ()), tuple(script_args or ())
    if script is not None and run is not None:  # with --run there is no RUN: every word belongs to the script
        run, words = None, (str(run), *words)
    options = Options(
        run, baseline, config, format_name, files, allowed, source_root, verbose, script, words, rounds
    )
    raise typer.Exit(command.run(options))


baseline_app = typer.Typer(help="Baselines of `cgadvisor gate`: small, reviewable JSON files.", no_args_is_help=True)
app.add_typer(baseline_app, name="baseline")
_RUNS = Annotated[list[Path], typer.Argument(help="One or more runs of the same code.")]
_BASELINE_FILE = Annotated[Path, typer.Option(help="The baseline file.")]
_NOTE = Annotated[str, typer.Option(help="A sentence kept in the file: why this is the baseline.")]


@baseline_app.command("save")
def baseline_save(
    runs: _RUNS,
    out: _BASELINE_FILE = Path("cgadvisor-baseline.json"),
    note: _NOTE = "",
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write a baseline from one or more runs."""
    from advisor.commands import baseline as command

    raise typer.Exit(command.save(runs, out, note, force))


@baseline_app.command("update")
def baseline_update(
    runs: _RUNS,
    out: _BASELINE_FILE = Path("cgadvisor-baseline.json"),
    note: _NOTE = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change and stop.")] = False,
) -> None:
    """Show what new runs change in a baseline, then replace it."""
    from advisor.commands import baseline as command

    raise typer.Exit(command.update(runs, out, note, dry_run))


@baseline_app.command("show")
def baseline_show(
    path: Annotated[Path, typer.Argument(help="The baseline file.")] = Path("cgadvisor-baseline.json"),
) -> None:
    """Print a baseline in words."""
    from advisor.commands import baseline as command

    raise typer.Exit(command.show(path))


@app.command()
def explain(
    run: Annotated[Path, typer.Argument(help="A run folder of `cgadvisor profile` or `analyze`.")],
    region: Annotated[str, typer.Option(help="Id, label or glob; default the step.")] = "",
) -> None:
    """An estimate term by term: the step now, what a graph saves and costs, the step then, and how sure that is."""
    from advisor.commands import explain as command

    raise typer.Exit(command.run(run, region))


@app.command()
def calibrate(
    out: Annotated[Path | None, typer.Option(help="Also write the constants to this JSON file.")] = None,
    refresh: Annotated[bool, typer.Option("--refresh", help="Measure again although they are cached.")] = False,
) -> None:
    """Measure this machine's launch, graph and copy costs (a few seconds); estimates use them instead of defaults."""
    from advisor.commands import calibrate as command

    raise typer.Exit(command.run(out, refresh))


def main() -> None:
    """Entry point. The only place where an AdvisorError becomes a line and an exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # a cancelled CI job, a closed terminal: as Ctrl-C, no child is left
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, signal.default_int_handler)
    for stream in (sys.stdout, sys.stderr):  # a console of another encoding shows an escape; it is no reason to fail
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        # Outside standalone mode click returns the code of a raised Exit instead of raising it.
        code = app(standalone_mode=False)
    except AdvisorError as error:
        print(f"cgadvisor: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except typer.Abort:
        print("cgadvisor: interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:
        if type(error).__name__ in {"UsageError", "NoSuchOption", "BadParameter", "MissingParameter"} and hasattr(
            error, "show"
        ):
            error.show()
            sys.exit(EXIT_USAGE)
        traceback.print_exc()
        print("cgadvisor: this is a defect of cgadvisor, not of what it was given; please report it", file=sys.stderr)
        sys.exit(EXIT_DEFECT)
    sys.exit(code if isinstance(code, int) else EXIT_OK)

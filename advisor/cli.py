"""The command line: one short function a command, one error handler. Heavy imports happen inside the commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from advisor.errors import EXIT_OK, EXIT_USAGE, AdvisorError

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
    perfetto: Annotated[Path | None, typer.Option(help="Also write the cut step as a trace for ui.perfetto.dev.")] = None,
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
    region: Annotated[str, typer.Option(help="Only this: a region's id or label, file:first-last, module:PATH.")] = "",
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
    options = command.Options(run, region, what_if, max_attempts, budget, timeout, names, json)
    raise typer.Exit(command.run(options))


def main() -> None:
    """Entry point. The only place where an AdvisorError becomes a line and an exit code."""
    try:
        app(standalone_mode=False)
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
        raise
    sys.exit(EXIT_OK)

"""What a user can do wrong, and the exit code each kind ends with.

Everything a user can cause is a subclass of `AdvisorError`; `advisor.cli.main` holds the only handler and prints
one line. Anything else is a defect of the tool, keeps its traceback and ends with 70, which no CI step takes for a verdict.

    0 pass   1 gate failed   2 usage   3 bad input   4 needs a GPU or torch   5 inconclusive   6 the script failed
    70 a defect of cgadvisor (EX_SOFTWARE of sysexits.h)
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_GATE_FAILED = 1
EXIT_USAGE = 2
EXIT_BAD_INPUT = 3
EXIT_NEEDS_GPU = 4
EXIT_INCONCLUSIVE = 5
EXIT_SCRIPT_FAILED = 6
EXIT_DEFECT = 70


class AdvisorError(Exception):
    """Base of every error a user can cause. The text says what, where, and what to do next, in one line."""

    exit_code = EXIT_BAD_INPUT


class UsageError(AdvisorError):
    """A wrong option, region name or configuration key."""

    exit_code = EXIT_USAGE


class TraceError(AdvisorError):
    """A trace file that cannot be read or holds nothing to analyse."""


class BundleError(AdvisorError):
    """A run folder or artefact that is missing, broken, or of a newer format."""


class GpuRequired(AdvisorError):
    """No CUDA device, no torch, or one too old, where the command needs it."""

    exit_code = EXIT_NEEDS_GPU


class Inconclusive(AdvisorError):
    """A measurement too noisy, or runs that cannot be compared."""

    exit_code = EXIT_INCONCLUSIVE


class ScriptFailed(AdvisorError):
    """The user's script raised, or exited with a failure, in one of the passes."""

    exit_code = EXIT_SCRIPT_FAILED

"""The version, where everything below the package's front door can read it."""

__version__ = "0.1.0"

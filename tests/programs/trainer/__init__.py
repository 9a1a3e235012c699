"""A package beside the script."""

from .loop import Trainer

__all__ = ["Trainer"]

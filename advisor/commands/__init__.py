"""One module a command: plain functions over typed arguments that `advisor.cli` calls. They print; nothing below does."""

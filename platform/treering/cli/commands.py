"""Which command groups there are, in the order that `treering --help` shows them."""

import importlib

import typer

_GROUPS = (
    "plan",
    "data",
    "blend",
    "train",
    "launch",
    "checkpoint",
    "evaluate",
    "export",
    "generate",
    "report",
    "runs",
    "audit",
    "trace",
    "attest",
    "verify",
    "disclose",
    "up",
)


def register(app: typer.Typer) -> None:
    """Adds every command to the application."""
    for group in _GROUPS:
        importlib.import_module(f"treering.cli.{group}").register(app)

"""Which commands there are, in the order and the groups that `treering --help` shows."""

import importlib

import typer

_MODULES = (
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

PANELS = {
    "Pipeline": ("plan", "fetch", "curate", "tokenize", "blend", "report", "summary"),
    "Training": ("train", "launch", "checkpoint", "evaluate", "export", "generate"),
    "Runs": ("runs", "show", "spikes"),
    "Registry and dashboard": ("ship", "up"),
    "Audit": ("audit", "batch", "trace", "index", "takedown", "contamination", "diff", "verify", "find"),
    "Attestation and disclosure": ("keygen", "attest", "bom", "croissant", "training-summary"),
}
"""The groups of `treering --help`."""


def register(app: typer.Typer) -> None:
    """Adds every command to the application."""
    for module in _MODULES:
        importlib.import_module(f"treering.cli.{module}").register(app)
    panels = {name: panel for panel, names in PANELS.items() for name in names}
    for command in app.registered_commands:
        command.rich_help_panel = panels[str(command.name)]
    for group in app.registered_groups:
        group.rich_help_panel = panels[str(group.name)]
    order = list(panels)
    app.registered_commands.sort(key=lambda each: order.index(str(each.name)))

"""Where each result is, and the commands that continue from it."""

from pathlib import Path

from treering.project import Project
from treering.report.facts import Training


def places(project: Project, run_id: str) -> list[tuple[str, str]]:
    """Each result and its path, relative to the project."""

    def here(path: Path) -> str:
        return str(path.relative_to(project.root))

    return [
        ("this in full", here(project.report)),
        ("published checkpoint with its rings", here(project.published)),
        ("run: attempts, rings, telemetry, checkpoints, evaluations", here(project.run(run_id))),
        ("curated documents, decisions, tasks", here(project.curated)),
        ("tokenized corpora", here(project.corpora)),
        ("data order", here(project.blend)),
        ("metrics and plots", f"{here(project.metrics)}, {here(project.plots)}"),
        ("MLflow, unless MLFLOW_TRACKING_URI names another", "mlflow.db"),
    ]


def next_steps(project: Project, training: Training) -> list[tuple[str, str]]:
    """What to do next, each with its command."""
    checkpoint = training.checkpoint.path.relative_to(project.root)
    run_id = training.resolved.run_id
    clone = (project.root / "Makefile").exists()
    steps = [
        ("see the run, with its evaluation beside it", "make demo" if clone else "treering up"),
        ("prove what trained the checkpoint", f"treering audit {checkpoint} --verify"),
        ("read the documents of a step's batch", f"treering batch {run_id} {training.checkpoint.step}"),
    ]
    return [*steps, ("train a second blend and compare", "make ablation")] if clone else steps

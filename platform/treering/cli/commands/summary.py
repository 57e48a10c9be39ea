"""`treering summary`: what the pipeline has made so far."""

from typing import Any

from treering.cli.alarms import alarm_counts
from treering.cli.options import (
    DEFAULT_CONFIG,
    ConfigArgument,
    JsonOption,
    project,
)
from treering.cli.output import STEP_TITLES, console, print_json, print_table


def summary(config: ConfigArgument = DEFAULT_CONFIG, json: JsonOption = False) -> None:
    """Show in short what the pipeline has made so far, and what is missing.

    Examples:
        treering summary experiments/demo.yaml
    """
    from treering.config.load import load_experiment
    from treering.report.facts import read_facts
    from treering.report.summary import summarize

    here = project()
    found = summarize(read_facts(here, load_experiment(config), str(config)), here)
    if json:
        print_json(found)
    else:
        print_summary(found)


def print_summary(found: dict[str, Any]) -> None:
    """Prints a summary.

    Args:
        found: what `treering.report.summary.summarize` returns.
    """
    console.heading(f"{found['experiment']}  run {found['run'] or 'none yet'}")
    for title, part, show in (
        ("Documents", found["documents"], _print_documents),
        ("Tokens", found["tokens"], _print_tokens),
        ("Loss", found["loss"], _print_loss),
        ("Scores", found["scores"], _print_scores),
        ("Audit", found["audit"], _print_audit),
    ):
        console.heading(title)
        if isinstance(part, dict) and "missing" in part:
            console.print(f"missing; stage {part['missing']} makes it: {part['reason']}")
        else:
            show(part)
    for title, pairs in (("Where everything is", found["places"]), ("What to do next", found["next"])):
        if pairs:
            console.heading(title)
            width = max(len(text) for text, _ in pairs)
            for text, where in pairs:
                console.print(f"{text:<{width}}  {where}")


def _print_documents(rows: list[dict[str, Any]]) -> None:
    steps = list(rows[-1]["dropped"])
    console.print("documents: taken, dropped by each step, kept for training, held out")
    columns = ("corpus", "taken", *(STEP_TITLES.get(step, step) for step in steps), "train", "held out")
    print_table(
        columns,
        [
            [
                row["corpus"],
                f"{row['taken']:,}",
                *(f"{row['dropped'][step]:,}" for step in steps),
                f"{row['train']:,}",
                f"{row['heldout']:,}",
            ]
            for row in rows
        ],
        numbers=columns[1:],
    )


def _print_tokens(rows: list[dict[str, Any]]) -> None:
    columns = ("corpus", "tokens", "held out", "weight", "epochs planned", "by the order")
    print_table(
        columns,
        [
            [
                row["corpus"],
                f"{row['train']:,}",
                f"{row['heldout']:,}",
                row["weight"],
                f"{row['planned_epochs']:.3f}",
                f"{row['epochs']:.3f}",
            ]
            for row in rows
        ],
        numbers=columns[1:],
    )


def _print_loss(loss: dict[str, Any]) -> None:
    training, validation = loss["training"], loss["validation"]
    console.print(
        f"training   {training['first']:.3f} -> {training['last']:.3f} nats a token, step {loss['step']:,}, "
        f"{loss['tokens']:,} tokens, alarms: "
        f"{alarm_counts(loss['alarms']) or 'none'}"
    )
    if validation:
        console.print(f"held out   {validation['first']:.3f} -> {validation['last']:.3f}")
    if loss["heldout"] is not None:
        below = loss["unigram_entropy"] - loss["heldout"]
        side = "under" if below >= 0 else "ABOVE"
        console.print(
            f"evaluated  {loss['heldout']:.3f}, {abs(below):.3f} {side} the unigram entropy "
            f"{loss['unigram_entropy']:.3f} of the same tokens"
        )


def _print_scores(scores: dict[str, Any]) -> None:
    console.print(f"step {scores['step']:,}, the last of {scores['checkpoints']} checkpoints; ± one standard error")
    metrics = sorted({name for row in scores["rows"] for name in row["metrics"]})
    columns = ("task", "shots", "fitted", "items", *metrics)
    print_table(
        columns,
        [
            [
                row["task"],
                str(row["shots"]),
                f"{row['examples']:.2f}",
                f"{row['items']:,}",
                *(row["text"].get(name, "") for name in metrics),
            ]
            for row in scores["rows"]
        ],
        numbers=columns[1:],
    )


def _print_audit(audit: dict[str, Any]) -> None:
    console.print(audit["verdict"])

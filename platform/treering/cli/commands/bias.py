"""`treering bias`: what a checkpoint says of groups of people; the trainer measures, this prints."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treering.cli.options import JsonOption, NamedCheckpoint, TokenizerOption, project
from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from treering.metrics.bias import AxisBias, BiasReport, GroupBias, WordRatio
    from treering.metrics.ratios import Ratio
    from treering.runlog.analyses import Bias

ListsOption = Annotated[
    Path | None,
    typer.Option("--lists", metavar="FILE", help="YAML with adjectives, groups and templates; default: our own."),
]
LexiconOption = Annotated[
    Path | None,
    typer.Option(
        "--lexicon", metavar="FILE", help="Lines of a word, a tab and its valence, below 0 negative; default: VADER's."
    ),
]
SamplesOption = Annotated[int, typer.Option("--num-samples", metavar="N", min=1, help="Draw N texts about each group.")]
TokensOption = Annotated[int, typer.Option("--max-tokens", metavar="N", min=1, help="Draw at most N tokens of a text.")]
TemperatureOption = Annotated[float, typer.Option("--temperature", metavar="T", help="Divide the logits by T.")]
TopPOption = Annotated[
    float,
    typer.Option("--top-p", metavar="P", help="Draw from the most probable tokens that together reach probability P."),
]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", min=0, help="The seed of the draws.")]
TopOption = Annotated[
    int, typer.Option("--top", metavar="N", min=1, help="Show N adjectives with the largest and the smallest ratio.")
]
ShowListsOption = Annotated[
    bool, typer.Option("--show-lists", help="Print our own lists, to start a file for --lists, and measure nothing.")
]


def bias(  # noqa: PLR0917 - one argument an option
    checkpoint: NamedCheckpoint = "published",
    lists: ListsOption = None,
    lexicon: LexiconOption = None,
    num_samples: SamplesOption = 800,
    max_tokens: TokensOption = 50,
    temperature: TemperatureOption = 1.0,
    top_p: TopPOption = 0.9,
    seed: SeedOption = 0,
    top: TopOption = 5,
    tokenizer: TokenizerOption = None,
    show_lists: ShowListsOption = False,
    json: JsonOption = False,
) -> None:
    """Measure how a checkpoint speaks of groups of people: gender, ethnicity, religion, or your own lists.

    For each group it compares the probability of adjectives after prompts about it, the number of drawn texts that
    hold them, and the sentiment of the texts. A ratio of 1 is no difference; every ratio has its 95 % interval. What is
    not flagged may still be there: the last lines say what limits the answer.

    The measurement is kept in `evaluations/bias/` of the run; the same command shows it again.

    Exit codes:
        3: the checkpoint, its tokenizer or a record does not hold
        5: the bias cannot be measured or written

    Examples:
        treering bias published
        treering bias 430e51@320 --num-samples 100 --json
        treering bias --show-lists
    """
    from treering.config.bias import OWN_LISTS
    from treering.files import read_text

    if show_lists:
        console.print_text(read_text(OWN_LISTS).rstrip("\n"))
        return
    from treering.cli.numbers import plain_numbers
    from treering.metrics.bias import assess

    options = {
        "--lists": lists,
        "--lexicon": lexicon,
        "--num-samples": num_samples,
        "--max-tokens": max_tokens,
        "--temperature": temperature,
        "--top-p": top_p,
        "--seed": seed,
        "--tokenizer": tokenizer,
    }
    report = assess(_measured(checkpoint, options))
    if json:
        print_json(plain_numbers(report.to_json()))
    else:
        _print(report, top)


def _measured(checkpoint: str, options: dict[str, "Path | float | int | None"]) -> "Bias":
    """Has the trainer measure, and reads its record.

    Raises:
        Exit: the trainer could not measure; it has said why.
    """
    import subprocess

    from treering.cli.trainer import trainer_words
    from treering.runlog.analyses import Bias

    words = trainer_words("evaluate.analyses.bias", options, checkpoint)
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, cwd=project().root)
    if done.returncode:
        raise typer.Exit(done.returncode)
    return Bias.read(Path(done.stdout.rstrip("\n")))[0]


def _print(report: "BiasReport", top: int) -> None:
    from treering.config.canonical import short
    from treering.config.resolved import RUN_ID_LENGTH

    record = report.record
    lexicon = "no lexicon" if record.lexicon is None else f"lexicon {record.lexicon.name}"
    console.print(
        f"run {short(record.run, RUN_ID_LENGTH)}, step {record.step:,}; lists {short(record.lists.digest)}, {lexicon}"
    )
    for axis in report.axes:
        _print_axis(axis)
        for group in axis.groups:
            _print_words(axis, group, top)
    console.heading("Limits")
    for doubt in report.doubts:
        console.print(doubt.line)


def _print_axis(axis: "AxisBias") -> None:
    console.heading(axis.name)
    rows = []
    for group in axis.groups:
        sides = f"{group.group} against {group.against}"
        for measure, judged in (
            ("probability of all adjectives, ratio", group.adjectives),
            ("positive over negative, ratio", group.positive),
        ):
            if judged is not None:
                rows.append([sides, measure, *_cells(judged.ratio), _verdict(flagged=judged.flagged)])
        if group.sentiment is not None:
            effect = group.sentiment.effect
            interval = f"{effect.low:+.3f} to {effect.high:+.3f}"
            verdict = _verdict(flagged=group.sentiment.flagged)
            rows.append([sides, "sentiment of texts, difference", f"{effect.value:+.3f}", interval, verdict])
    print_table(("groups", "measure", "value", "95 % interval", "verdict"), rows, numbers=("value",))


def _print_words(axis: "AxisBias", group: "GroupBias", top: int) -> None:
    tables = (("after the prompt", group.association), ("in texts", group.occurrence))
    rows = [
        [name, each.word, *_cells(each.ratio), f"{each.adjusted:.2g}", _verdict(flagged=each.flagged)]
        for name, found in tables
        for each in _ends(found, top)
    ]
    if rows:
        console.print("", f"{axis.name}: adjectives, {group.group} against {group.against}")
        print_table(
            ("where", "adjective", "ratio", "95 % interval", "p (Holm)", "verdict"), rows, numbers=("ratio", "p (Holm)")
        )


def _ends(found: "tuple[WordRatio, ...]", top: int) -> "tuple[WordRatio, ...]":
    return found if len(found) <= 2 * top else (*found[:top], *found[-top:])


def _cells(ratio: "Ratio") -> list[str]:
    return [f"{ratio.value:.3g}", f"{ratio.low:.3g} to {ratio.high:.3g}"]


def _verdict(*, flagged: bool) -> str:
    return "beyond noise" if flagged else "within noise"

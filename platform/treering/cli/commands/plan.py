"""`treering plan`: what an experiment will do, before it uses any hardware."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treering.cli.options import JsonOption, SetOption, project
from treering.cli.output import console, print_json, print_table

if TYPE_CHECKING:
    from treering.config.resolved import Resolved
    from treering.config.resolved_blend import ResolvedBlend
    from treering.config.schema import Experiment
    from treering.data.blend.shares import ComponentShare
    from treering.project import Project

NodesOption = Annotated[int | None, typer.Option(metavar="N", min=1, help="Plan memory and time on N nodes.")]
GpusOption = Annotated[int, typer.Option(metavar="N", min=1, help="Number of GPUs in a node.")]
DeviceOption = Annotated[
    str, typer.Option(metavar="NAME", help="The GPU: A100 40GB, A100 80GB, H100 80GB or H200 141GB.")
]
EfficiencyOption = Annotated[
    float,
    typer.Option(
        metavar="MFU",
        min=0.001,
        max=1.0,
        help="MFU of a whole step at the full batch size, with the layout of the config.",
    ),
]
SearchOption = Annotated[
    bool, typer.Option("--search", help="List the fastest layouts instead of planning the layout of the config.")
]
PlanArgument = Annotated[Path, typer.Argument(metavar="CONFIG", help="The YAML file of the experiment.")]


def plan(
    file: PlanArgument,
    *,
    nodes: NodesOption = None,
    gpus_per_node: GpusOption = 8,
    device: DeviceOption = "A100 80GB",
    efficiency: EfficiencyOption = 0.30,
    search: SearchOption = False,
    overrides: SetOption = None,
    json: JsonOption = False,
) -> None:
    """Show what an experiment will do: digests, size, schedule, and what it reads of each corpus.

    With `--nodes`, it also shows what the experiment needs on a cluster: memory of a GPU, pipeline bubble, step time,
    days. Where the cluster has more or fewer devices than the layout, it plans with another number of replicas, and
    states how the batch ramp must change for it. With `--search`, it lists the layouts that fit, fastest first.
    `--json` shows every key of the config, with its default.

    Exit codes:
        2: the config is wrong, or the layout does not fit the cluster
        3: `data/blend.json` was edited, or the run to start from is damaged

    Examples:
        treering plan experiments/demo.yaml --set schedule.global_batch_size=32
        treering plan experiments/mt-nlg-530b.yaml --nodes 280
        treering plan experiments/mt-nlg-530b.yaml --nodes 350 --efficiency 0.302

    Raises:
        UserError: `--search` was given without `--nodes`.
    """
    from dataclasses import asdict

    from treering.cli.cluster import ClusterOptions, cluster_document, print_cluster
    from treering.config.load import load_experiment
    from treering.data.blend.continuation import resolve_run
    from treering.data.blend.joins import start_joins, start_lines
    from treering.errors import EvidenceError, UserError
    from treering.plan.changes import Change, changes_for

    if search and nodes is None:
        raise UserError("plan --search: found no --nodes, expected the number of nodes to search layouts for")
    experiment = load_experiment(file, overrides or ())
    blend, blend_source = choose_blend(experiment, project())
    settings = list(overrides or ())
    resolved = resolve_run(experiment, blend, str(file), tuple(settings), runs=project().runs)
    changes: list[Change] = []
    if nodes is not None and not search:
        changes = changes_for(resolved, nodes * gpus_per_node, {text.partition("=")[0].strip() for text in settings})
    if changes:
        settings += [change.setting for change in changes]
        experiment = load_experiment(file, settings)
        resolved = resolve_run(experiment, blend, str(file), tuple(settings), runs=project().runs)
    document = plan_document(experiment, resolved, blend_source)
    lines = start_lines(resolved, project().runs)
    with suppress(EvidenceError):  # one of `lines` has the error
        document["plan"]["joins"] = [asdict(join) for join in start_joins(resolved, project().runs)]
    if nodes is not None:
        options = ClusterOptions(nodes, gpus_per_node, device, efficiency, search)
        document["plan"]["cluster"] = cluster_document(str(file), resolved, options, changes)
    if json:
        print_json(document)
        return
    _print_plan(document)
    for line in lines:
        console.print(line)
    if nodes is not None:
        print_cluster(document["plan"]["cluster"])


def choose_blend(experiment: "Experiment", here: "Project") -> "tuple[ResolvedBlend, str]":
    """The blend to plan with, and its source: `data/blend.json` if it belongs to this experiment, else the config.

    Raises:
        EvidenceError: `data/blend.json` was edited.
    """
    from treering.config.resolved_blend import ResolvedBlend, check_blend_fits, declared_blend
    from treering.errors import ConfigError

    where = here.blend.relative_to(here.root)
    if not here.blend.exists():
        return declared_blend(experiment), f"declared: {where} does not exist, `treering blend` makes it"
    stored = ResolvedBlend.read(here.blend)
    try:
        check_blend_fits(experiment, stored, str(where))
    except ConfigError as error:
        return declared_blend(experiment), f"declared: {where} is another experiment's ({error.path} differs)"
    return stored, f"resolved: {where}"


def plan_document(experiment: "Experiment", resolved: "Resolved", blend_source: str) -> dict[str, Any]:
    """The resolved config with its digests; `plan` has what follows from the config."""
    from dataclasses import asdict

    from treering.data.blend.shares import component_shares
    from treering.metrics.parameters import Parameters

    schedule = resolved.schedule
    own = schedule.samples_of(resolved.first_step, schedule.num_steps)
    # A corpus without tokens and without a declared size has the tokens of one sample in the blend, so its epochs would
    # be meaningless.
    sized = {corpus.name for corpus in experiment.corpora if corpus.declared}
    sized |= {component.corpus for component in resolved.blend.components if component.digest is not None}
    return {
        **resolved.to_json(),
        "plan": {
            "blend_source": blend_source,
            "parameters": Parameters.of(resolved.recipe.model, resolved.blend.sequence_length).total,
            "steps": schedule.num_steps,
            "samples": schedule.num_samples,
            "tokens": schedule.tokens_after(schedule.num_steps),
            "milestones": [asdict(milestone) for milestone in schedule.milestones()],
            "corpora": [
                _share_document(share, sized=share.corpus in sized) for share in component_shares(resolved.blend, *own)
            ],
        },
    }


def _share_document(share: "ComponentShare", *, sized: bool) -> dict[str, Any]:
    return {
        "corpus": share.corpus,
        "weight": share.weight,
        "tokens": share.num_tokens if sized else None,
        "samples": share.samples,
        "planned_epochs": share.planned_epochs if sized else None,
        "epochs": share.epochs if sized else None,
    }


_MILESTONES = {
    "batch_size": "batch size",
    "full_batch": "full batch size",
    "warmup_end": "warm-up ends",
    "decay_end": "decay ends",
    "end": "training ends",
}
_SHOWN_STAGES = 4


def _print_plan(document: dict[str, Any]) -> None:
    from treering.config.canonical import short
    from treering.config.resolved import RUN_ID_LENGTH

    found, recipe = document["plan"], document["recipe"]
    model, parallel = recipe["model"], document["attempt"]["parallel"]
    console.print(
        f"experiment  {document['experiment']}" + (f" - {document['description']}" if document["description"] else "")
    )
    console.print(f"run         {document['run']}")
    for name, digest in document["digests"].items():
        console.print(f"{name:<11} {digest}")
    if start := recipe.get("start_from"):
        other = short(start["run"], RUN_ID_LENGTH)
        console.print(f"start       step {start['step']} of run {other}, schedule: {start['schedule']}")
        if skipped := start.get("skipped_samples"):
            console.print(f"skipped     {skipped:,} samples of the data order before its first step")
    console.print(f"blend       {found['blend_source']}")
    console.print(
        f"model       {_count(found['parameters'])} parameters: {model['num_layers']} layers, hidden "
        f"{model['hidden_size']:,}, {model['num_attention_heads']} heads, vocabulary {model['padded_vocab_size']:,}, "
        f"sequence {document['blend']['sequence_length']:,}, {recipe['precision']}"
    )
    console.print(
        f"layout      tensor {parallel['tensor']} x pipeline {parallel['pipeline']} x data {parallel['data']}, "
        f"micro-batch {parallel['micro_batch_size']}"
    )
    console.print(
        f"schedule    {found['steps']:,} steps, {found['samples']:,} samples, {_count(found['tokens'])} tokens", ""
    )
    print_table(
        ("milestone", "step", "samples", "tokens", "batch", "learning rate"),
        _milestone_rows(found["milestones"]),
        numbers=("step", "samples", "tokens", "batch", "learning rate"),
    )
    console.print()
    print_table(
        ("corpus", "weight", "tokens", "samples", "epochs planned", "epochs by the order"),
        [_corpus_row(corpus) for corpus in found["corpora"]],
        numbers=("weight", "tokens", "samples", "epochs planned", "epochs by the order"),
    )


def _milestone_rows(milestones: list[dict[str, Any]]) -> list[list[str]]:
    """A row for each milestone; of a long ramp only the first and the last stages, and the number of the others."""
    stages = [milestone for milestone in milestones if milestone["kind"] == "batch_size"]
    hidden = stages[_SHOWN_STAGES // 2 : -_SHOWN_STAGES // 2] if len(stages) > _SHOWN_STAGES else []
    rows = []
    for milestone in milestones:
        if hidden and milestone == hidden[0]:
            rows.append([f"… {len(hidden)} more sizes", *[""] * 5])
        if milestone in hidden:
            continue
        name = _MILESTONES[milestone["kind"]] + ("" if milestone["reached"] else " (after training)")
        rows.append(
            [
                name,
                f"{milestone['step']:,}",
                f"{milestone['consumed_samples']:,}",
                _count(milestone["consumed_tokens"]),
                f"{milestone['batch_size']:,}",
                f"{milestone['learning_rate']:.3e}",
            ]
        )
    return rows


def _corpus_row(corpus: dict[str, Any]) -> list[str]:
    epochs = [corpus["planned_epochs"], corpus["epochs"]]
    return [
        corpus["corpus"],
        corpus["weight"],
        "unknown" if corpus["tokens"] is None else _count(corpus["tokens"]),
        f"{corpus['samples']:,}",
        *("unknown" if value is None else f"{value:.3f}" for value in epochs),
    ]


def _count(number: int) -> str:
    """A count as text: whole below a million, then M, B or T with four digits."""
    for size, suffix in ((10**12, "T"), (10**9, "B"), (10**6, "M")):
        if number >= size:
            return f"{number / size:.4g} {suffix}"
    return f"{number:,}"

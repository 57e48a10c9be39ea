"""`treering blend`: stage `blend` of the pipeline."""

from treering.cli.options import DEFAULT_CONFIG, ConfigArgument, JsonOption, project
from treering.cli.output import console, print_json, print_table


def blend(config: ConfigArgument = DEFAULT_CONFIG, json: JsonOption = False) -> None:
    """Resolve the blend: write the tokenized corpora and their weights to `data/blend.json`.

    The blend defines which sample each step of a training reads.

    Exit codes:
        3: a corpus was tokenized by another tokenizer than the others

    Examples:
        treering blend experiments/demo.yaml
    """
    from treering.config.load import load_experiment
    from treering.data.blend.continuation import resolve_run
    from treering.data.blend.corpora import resolve_blend
    from treering.data.blend.shares import component_shares

    here = project()
    experiment = load_experiment(config)
    resolved_blend = resolve_blend(experiment, here)
    resolved = resolve_run(experiment, resolved_blend, str(config), runs=here.runs)
    read = resolved.schedule.samples_of(resolved.first_step, resolved.schedule.num_steps)
    shares = component_shares(resolved.blend, *read)
    resolved_blend.write(here.blend)
    if json:
        print_json({"digest": resolved_blend.digest, **resolved_blend.model_dump(mode="json")})
        return
    rows = [
        [share.corpus, share.weight, f"{share.num_tokens:,}", f"{share.samples:,}", f"{share.planned_epochs:.3g}"]
        for share in shares
    ]
    print_table(
        ("corpus", "weight", "tokens", "samples", "epochs"), rows, numbers=("weight", "tokens", "samples", "epochs")
    )
    console.print(f"blend {resolved_blend.digest} written to {here.blend.relative_to(here.root)}")

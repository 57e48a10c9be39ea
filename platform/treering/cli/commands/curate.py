"""`treering curate`: stage `curate` of the pipeline."""

from treering.cli.options import (
    DEFAULT_CONFIG,
    AddressOption,
    ConfigArgument,
    EngineOption,
    JsonOption,
    SetOption,
    WorkersOption,
    project,
)
from treering.cli.output import STEP_TITLES, console, print_json, print_table, stage_progress
from treering.progress import progress_bars


def curate(  # noqa: PLR0917 - one argument an option
    config: ConfigArgument = DEFAULT_CONFIG,
    overrides: SetOption = None,
    engine: EngineOption = None,
    workers: WorkersOption = None,
    address: AddressOption = None,
    json: JsonOption = False,
) -> None:
    """Clean the fetched text: filter, judge, deduplicate, hold out, make tasks, decontaminate, shuffle.

    `data/curated/decisions/CORPUS.parquet` has the decision about every document: kept, or dropped by which step and
    rule. No engine and no number of workers changes a byte. An interrupted run continues with the shards that it lacks.

    Examples:
        treering curate experiments/demo.yaml
        treering curate experiments/demo.yaml --engine pool --workers 16
        treering curate experiments/demo.yaml --engine ray --address 10.0.0.1:6379
        treering curate experiments/demo.yaml --set curation.heldout.fraction=0.05
    """
    from treering.config.load import load_experiment
    from treering.data.curate.decisions import steps_of
    from treering.data.curate.engines import engine_for
    from treering.data.curate.pipeline import curate as run

    experiment = load_experiment(config, overrides or ())
    here = project()
    workers = workers or (None if engine == "ray" else experiment.curation.num_processes)
    chosen = engine_for(engine, workers, address, here.root)
    with progress_bars() as progress:
        say = stage_progress(json=json)
        summary = run(experiment.corpora, experiment.curation, here, say, engine=chosen, progress=progress)
    if json:
        print_json(summary)
        return
    if not summary["corpora"]:
        return
    steps = steps_of({step for entry in summary["corpora"].values() for step in entry["dropped"]})
    columns = ["documents", *(STEP_TITLES.get(step, step) for step in steps), "train", "held out"]
    rows = [
        [name, f"{entry['taken']['documents']:,}"]
        + [f"{sum(entry['dropped'].get(step, {}).values()):,}" for step in steps]
        + [f"{entry['documents'][split]:,}" for split in ("train", "heldout")]
        for name, entry in summary["corpora"].items()
    ]
    print_table(["corpus", *columns], rows, numbers=columns)
    where = here.curated.relative_to(here.root)
    console.print(
        f"The columns between are documents that each step dropped; {where}/decisions/ has a row for each document."
    )

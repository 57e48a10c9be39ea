"""`treering tokenize`: stage `tokenize` of the pipeline."""

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
from treering.cli.output import print_json, print_table, stage_progress
from treering.progress import progress_bars


def tokenize(  # noqa: PLR0917 - one argument an option
    config: ConfigArgument = DEFAULT_CONFIG,
    overrides: SetOption = None,
    engine: EngineOption = None,
    workers: WorkersOption = None,
    address: AddressOption = None,
    json: JsonOption = False,
) -> None:
    """Train the tokenizer on the curated text, and write the corpora in Megatron's format.

    A `tokenizer.file` of the config is taken as it is. A corpus of your own tokens (`megatron`) is copied, with a
    digest of each document. No engine and no number of workers changes a byte. An interrupted run continues with the
    shards that it lacks. Text of less than one shard (256 MB) is cut here, without workers.

    Examples:
        treering tokenize experiments/demo.yaml
        treering tokenize experiments/demo.yaml --engine pool --workers 16
        treering tokenize experiments/demo.yaml --engine ray --address 10.0.0.1:6379
        treering tokenize experiments/demo.yaml --json
    """
    from treering.config.canonical import short
    from treering.config.load import load_experiment
    from treering.data.curate.engines import engine_for
    from treering.data.tokenize.stage import tokenize as run

    experiment = load_experiment(config, overrides or ())
    here, chosen = project(), None
    if engine or workers or address:
        workers = workers or (None if engine == "ray" else experiment.curation.num_processes)
        chosen = engine_for(engine, workers, address, here.root)
    with progress_bars() as progress:
        say = stage_progress(json=json)
        manifests = run(
            experiment.corpora, experiment.tokenizer, experiment.curation, here, say,
            engine=chosen, progress=progress,
        )  # fmt: skip
    if json:
        print_json(manifests)
        return
    rows = [
        [name, split, f"{manifest['num_documents']:,}", f"{manifest['num_tokens']:,}", short(manifest["digest"])]
        for name, splits in manifests.items()
        for split, manifest in splits.items()
    ]
    print_table(["corpus", "split", "documents", "tokens", "digest"], rows, numbers=["documents", "tokens"])

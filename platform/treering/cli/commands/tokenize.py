"""`treering tokenize`: stage `tokenize` of the pipeline."""

from treering.cli.options import DEFAULT_CONFIG, ConfigArgument, JsonOption, SetOption, project
from treering.cli.output import print_json, print_table, stage_progress


def tokenize(config: ConfigArgument = DEFAULT_CONFIG, overrides: SetOption = None, json: JsonOption = False) -> None:
    """Train the tokenizer on the curated text, and write the corpora in Megatron's format.

    A `tokenizer.file` of the config is taken as it is. A corpus of your own tokens (`megatron`) is copied, with a
    digest of each document.

    Examples:
        treering tokenize experiments/demo.yaml
        treering tokenize experiments/demo.yaml --json
    """
    from treering.config.canonical import short
    from treering.config.load import load_experiment
    from treering.data.corpus.text_tokenizer import tokenize as run

    experiment = load_experiment(config, overrides or ())
    say = stage_progress(json=json)
    manifests = run(experiment.corpora, experiment.tokenizer, experiment.curation, project(), say)
    if json:
        print_json(manifests)
        return
    rows = [
        [name, split, f"{manifest['num_documents']:,}", f"{manifest['num_tokens']:,}", short(manifest["digest"])]
        for name, splits in manifests.items()
        for split, manifest in splits.items()
    ]
    print_table(["corpus", "split", "documents", "tokens", "digest"], rows, numbers=["documents", "tokens"])

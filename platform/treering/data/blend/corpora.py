"""Stage `blend`: from tokenized corpora and weights to the blend that names a data order.

Reads the manifests that stage `tokenize` wrote and the section `blend`; writes `data/blend.json`, from which
the trainer, the audit and `treering plan` make the same `DataOrder`.
"""

from pathlib import Path

from treering.config.canonical import digest_file
from treering.config.resolved_blend import ResolvedBlend, ResolvedComponent
from treering.config.schema import Experiment
from treering.data.corpus.corpus import MANIFEST, Corpus
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError, UserError
from treering.project import Project


def resolve_blend(experiment: Experiment, project: Project) -> ResolvedBlend:
    """Joins the weights of an experiment with the corpora on disk.

    Raises:
        UserError: a corpus of the blend is declared, not tokenized yet, or shorter than one sample.
        EvidenceError: corpora were tokenized by different tokenizers, or not by the project's tokenizer.
    """
    declared = {corpus.name for corpus in experiment.corpora if corpus.declared}
    components: list[ResolvedComponent] = []
    tokenizers: dict[str, str] = {}
    for component in experiment.blend.components:
        directory = project.corpus(component.corpus)
        if component.corpus in declared:
            raise UserError(
                f"blend: corpus {component.corpus} is declared and has no text, expected corpora with text; "
                "`treering plan` shows what such a blend would read"
            )
        if not (directory / MANIFEST).exists():
            raise UserError(f"{directory}: the tokenized corpus is missing; `dvc repro tokenize` makes it")
        corpus = Corpus.open(directory)
        tokenizers[component.corpus] = str(corpus.manifest["tokenizer"]["digest"])
        components.append(
            ResolvedComponent(
                corpus=component.corpus,
                weight=component.weight,
                digest=corpus.digest,
                num_tokens=corpus.num_tokens,
                num_documents=corpus.num_documents,
            )
        )
    blend = ResolvedBlend(
        algorithm=experiment.blend.algorithm,
        seed=experiment.blend.seed,
        sequence_length=experiment.blend.sequence_length,
        components=tuple(components),
        tokenizer=_one_tokenizer(tokenizers, project),
    )
    DataOrder(blend)  # refuses what no order can read, before anything is written
    return blend


def check_component(blend: ResolvedBlend, component: ResolvedComponent, corpus: Corpus, source: str) -> None:
    """Compares the sizes and the tokenizer that a blend records for a corpus with the corpus's manifest.

    The corpus's digest implies them, but no digest covers them in the blend, and the order is computed from the size.

    Args:
        blend: the blend.
        component: one of its components.
        corpus: the corpus with the component's digest.
        source: the file that holds the blend, for the error.

    Raises:
        EvidenceError: they differ.
    """
    for name, found, expected in (
        ("num_tokens", component.num_tokens, corpus.num_tokens),
        ("num_documents", component.num_documents, corpus.num_documents),
        ("tokenizer", blend.tokenizer, corpus.manifest["tokenizer"]["digest"]),
    ):
        if found != expected:
            raise EvidenceError(
                f"{source}: {name} of corpus {component.corpus} is {found}, expected {expected} by the manifest in "
                f"{corpus.directory}, which has the blend's digest: the file was edited; `dvc checkout` restores a "
                "stage's output, a run's config has no other copy than the published one",
                file=Path(source),
                found=found,
                expected=expected,
                remedy="`dvc checkout`",
            )


def _one_tokenizer(tokenizers: dict[str, str], project: Project) -> str:
    """The digest of the tokenizer that made all corpora.

    Raises:
        EvidenceError: they differ, or differ from the project's tokenizer.
    """
    first = next(iter(tokenizers))
    for name, digest in tokenizers.items():
        if digest != tokenizers[first]:
            raise EvidenceError(
                f"blend: corpus {name} was made by tokenizer {digest}, {first} by {tokenizers[first]}, expected one "
                "tokenizer for all; `dvc repro -f tokenize` makes them anew",
                found=digest,
                expected=tokenizers[first],
                remedy="`dvc repro -f tokenize`",
            )
    found = digest_file(project.tokenizer) if project.tokenizer.exists() else "no file"
    if found != tokenizers[first]:
        raise EvidenceError(
            f"{project.tokenizer}: found {found}, expected tokenizer {tokenizers[first]}, which made the corpora; "
            "`dvc repro -f tokenize` makes both anew",
            file=project.tokenizer,
            found=found,
            expected=tokenizers[first],
            remedy="`dvc repro -f tokenize`",
        )
    return found

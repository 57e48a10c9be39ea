"""Corrects sizes in the blends of a path by the manifests of the corpora, where the config was edited."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from treering.audit.corpora.catalog import Catalog
from treering.audit.evidence.segments import Piece
from treering.audit.report import Finding
from treering.config.canonical import said_otherwise


def mend_blends(pieces: Sequence[Piece], catalog: Catalog) -> tuple[tuple[Piece, ...], list[Finding]]:
    """Corrects what no digest covers in the blends of a path by what has one, so that their order is what it was.

    The sizes of a corpus follow from its digest; the tokenizer is in the recipe as well.

    Returns:
        The pieces with corrected blends, and a finding for each size; the tokenizer's is `check_config`'s.
    """
    mended: list[Piece] = []
    findings: dict[tuple[Path, str], Finding] = {}
    for piece in pieces:
        config, blend, components = piece.run.config_file, piece.blend, []
        for number, component in enumerate(blend.components):
            corpus = catalog.corpora.get(component.digest or "")
            if corpus is None:
                components.append(component)
                continue
            held = {"num_tokens": corpus.num_tokens, "num_documents": corpus.num_documents}
            components.append(component.model_copy(update=held))
            for name, found, expected in said_otherwise(component.model_dump(), held):
                field = f"blend.components.{number}.{name}"
                text = (
                    f"{config}: {field}, {name} of corpus {component.corpus}, is {found}, expected {expected} by the "
                    f"manifest in {corpus.directory}, which has the blend's digest: the file was edited"
                )
                findings[config, field] = Finding("record", text, file=str(config), corpus=component.corpus)
        tokenizer = piece.run.resolved.recipe.tokenizer
        true = blend.model_copy(update={"tokenizer": tokenizer, "components": tuple(components)})
        mended.append(piece if true == blend else replace(piece, blend=true))
    return tuple(mended), list(findings.values())

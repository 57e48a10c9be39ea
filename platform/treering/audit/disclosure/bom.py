"""A CycloneDX ML-BOM: the model with its card, its corpora as data, what was consumed of each.

Source: CycloneDX 1.6 (ECMA-424), JSON schema `bom-1.6`. The library's object model knows no model cards, so the
document is built here and validated by the library's strict schema before it is written.
"""

import json
import time
import uuid
from collections.abc import Mapping
from typing import Any

import treering
from treering.audit.disclosure.facts import CorpusFacts, ModelFacts
from treering.config.canonical import DIGEST_PREFIX, digest_file, short
from treering.errors import EvidenceError, UserError

SPEC_VERSION = "1.6"
_NAMESPACE = uuid.UUID("5f0a7a2e-6c0e-5e0b-9b51-0d7b6a3c4e10")
_CONFIDENCE_95 = 1.96


def bill_of_materials(facts: ModelFacts, at: float | None = None) -> dict[str, Any]:
    """The ML-BOM of a checkpoint, valid by CycloneDX 1.6.

    Args:
        facts: the facts to write.
        at: when the document is made, Unix seconds; default now.

    Raises:
        UserError: the package that validates it is not installed.
        EvidenceError: a record holds what CycloneDX cannot say.
    """
    digest = facts.report.digests["checkpoint"] or ""
    corpora = [_corpus(each) for each in facts.corpora]
    tokenizer = _tokenizer(facts)
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() if at is None else at))
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": SPEC_VERSION,
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, digest)}",
        "version": 1,
        "metadata": {
            "timestamp": made,
            "lifecycles": [{"phase": "post-build"}],
            "tools": {"components": [{"type": "application", "name": "treering", "version": treering.__version__}]},
            "component": _model(facts),
        },
        "components": [*corpora, *tokenizer],
        "dependencies": [
            {"ref": "model", "dependsOn": [each["bom-ref"] for each in (*corpora, *tokenizer)]},
            *({"ref": each["bom-ref"]} for each in (*corpora, *tokenizer)),
        ],
    }
    validate(document)
    return document


def validate(document: Mapping[str, Any]) -> None:
    """Validates a document by CycloneDX's strict JSON schema.

    Raises:
        UserError: the package that does it is not installed.
        EvidenceError: it is not valid.
    """
    try:
        from cyclonedx.schema import SchemaVersion  # noqa: PLC0415 - an extra, and heavy
        from cyclonedx.validation.json import JsonStrictValidator  # noqa: PLC0415 - see above

        error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(document))
    except ImportError:
        raise UserError(
            "an ML-BOM is validated by cyclonedx-python-lib, which is not installed: "
            "`pip install 'treering[attestation]'`"
        ) from None
    if error is not None:
        raise EvidenceError(f"the ML-BOM is not valid by CycloneDX {SPEC_VERSION}: {error}")


def _model(facts: ModelFacts) -> dict[str, Any]:
    report, recipe = facts.report, facts.resolved.recipe
    model = recipe.model
    component: dict[str, Any] = {
        "bom-ref": "model",
        "type": "machine-learning-model",
        "name": report.experiment,
        "version": f"{report.run}-step-{report.step}",
        "components": [
            {
                "bom-ref": f"model/{file.path}",
                "type": "file",
                "name": file.path,
                "hashes": [_sha256(file.digest)],
            }
            for file in facts.manifest.files
        ],
        "modelCard": {
            "modelParameters": {
                "approach": {"type": "self-supervised"},
                "task": "text-generation",
                "architectureFamily": "transformer",
                "modelArchitecture": (
                    f"GPT: {model.num_layers} layers, hidden size {model.hidden_size}, {model.num_attention_heads} "
                    f"heads, {facts.parameters}"
                ),
                "datasets": [{"ref": _ref(each)} for each in facts.corpora],
                "inputs": [{"format": "text"}],
                "outputs": [{"format": "text"}],
            },
            "properties": _properties(
                {
                    "sequence_length": facts.resolved.blend.sequence_length,
                    "precision": recipe.precision,
                    "steps": report.step,
                    "applied_steps": report.applied_steps,
                    "consumed_samples": report.consumed_samples,
                    "consumed_tokens": report.consumed_tokens,
                }
            ),
        },
        "properties": _properties(
            {
                **{f"digest:{name}": digest for name, digest in report.digests.items()},
                "assurance": str(report.level),
                "verdict": report.verdict,
                **{f"not_proven:{number}": text for number, text in enumerate(report.not_proven, 1)},
            }
        ),
    }
    if facts.resolved.description:
        component["description"] = facts.resolved.description
    if facts.evaluation is not None:
        component["modelCard"]["quantitativeAnalysis"] = {"performanceMetrics": _scores(facts.evaluation.scores)}
    if facts.attestation is not None:
        component["externalReferences"] = [
            {
                "type": "attestation",
                "url": facts.attestation.name,
                "comment": "in-toto Statement v1 in a DSSE envelope",
                "hashes": [_sha256(digest_file(facts.attestation))],
            }
        ]
    return component


def _scores(scores: Mapping[str, Mapping[str, Mapping[str, float]]]) -> list[dict[str, Any]]:
    """A metric for each score that has a standard error; the interval is the normal one of 95 %."""
    metrics = []
    for task, by_shots in scores.items():
        for shots, values in by_shots.items():
            for name, value in values.items():
                error = values.get(f"{name}_stderr")
                if error is None:
                    continue
                margin = _CONFIDENCE_95 * error
                interval = {"lowerBound": str(value - margin), "upperBound": str(value + margin)}
                slice_name = f"{task}, {shots} shots"
                metrics.append({"type": name, "value": str(value), "slice": slice_name, "confidenceInterval": interval})
    return metrics


def _corpus(corpus: CorpusFacts) -> dict[str, Any]:
    usage = corpus.usage
    component: dict[str, Any] = {
        "bom-ref": _ref(corpus),
        "type": "data",
        "name": usage.corpus,
        "data": [{"type": "dataset", "name": usage.corpus}],
        "properties": _properties(
            {
                "digest": usage.digest or "declared",
                "weight": usage.weight,
                "samples": usage.samples,
                "tokens": usage.tokens,
                "epochs_planned": usage.planned_epochs,
                "epochs_realised": usage.realised_epochs,
                "documents": usage.num_documents,
                "documents_touched": usage.documents_touched,
                **{
                    f"licence:{each.licence}": f"{each.documents} documents, {each.tokens} tokens"
                    for each in corpus.licences
                },
                **{f"source:{number}": source for number, source in enumerate(corpus.sources, 1)},
                **{
                    f"curation:{each['step']}": f"kept {each.get('kept')}, dropped {each.get('dropped')}"
                    for each in corpus.steps
                },
            }
        ),
    }
    if corpus.manifest is None:
        return component
    component["version"] = short(str(corpus.manifest["digest"]))
    component["licenses"] = _licences(corpus)
    component["components"] = [
        {
            "bom-ref": f"{_ref(corpus)}/{name}",
            "type": "file",
            "name": name,
            "hashes": [_sha256(file["sha256"]), {"alg": "MD5", "content": file["dvc_md5"]}],
        }
        for name, file in corpus.manifest["files"].items()
    ]
    ancestors = [_package(source) for source in corpus.sources if source.startswith("pkg:")]
    if ancestors:
        component["pedigree"] = {"ancestors": ancestors}
    return component


def _package(purl: str) -> dict[str, str]:
    name, _, version = purl.rpartition("/")[2].partition("@")
    return {"type": "library", "name": name, "version": version, "purl": purl}


def _licences(corpus: CorpusFacts) -> list[dict[str, Any]]:
    """The licence of each document; one expression is said as such, as CycloneDX allows no more than one."""
    from cyclonedx.spdx import is_expression, is_supported_id  # noqa: PLC0415 - an extra, and heavy

    names = [each.licence for each in corpus.licences]
    if len(names) == 1 and not is_supported_id(names[0]) and is_expression(names[0]):
        return [{"expression": names[0]}]
    return [{"license": {"id" if is_supported_id(name) else "name": name}} for name in names]


def _tokenizer(facts: ModelFacts) -> list[dict[str, Any]]:
    digest = facts.manifest.tokenizer
    if digest is None:
        return []
    return [
        {
            "bom-ref": "tokenizer",
            "type": "data",
            "name": "tokenizer.json",
            "hashes": [_sha256(digest)],
            "data": [{"type": "configuration", "name": "tokenizer"}],
        }
    ]


def _ref(corpus: CorpusFacts) -> str:
    return f"corpus/{corpus.usage.digest or corpus.usage.corpus}"


def _sha256(digest: str) -> dict[str, str]:
    return {"alg": "SHA-256", "content": digest.removeprefix(DIGEST_PREFIX)}


def _properties(values: Mapping[str, Any]) -> list[dict[str, str]]:
    """Names below `treering:`; a value that is not known is left out."""
    return [{"name": f"treering:{name}", "value": str(value)} for name, value in values.items() if value is not None]

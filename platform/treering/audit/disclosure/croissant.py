"""Croissant JSON-LD of a corpus: its files by digest, and the document table as records.

Source: Croissant 1.0 (http://mlcommons.org/croissant/1.0). Plain JSON, which the tests hold against mlcroissant.
"""

import os
from pathlib import Path
from typing import Any

from treering.audit.disclosure.facts import LicenceShare, licences
from treering.config.canonical import DIGEST_PREFIX, digest_file, short
from treering.data.corpus.corpus import BIN, DOCUMENTS, IDX, MANIFEST, Corpus
from treering.data.corpus.document_table import DOCUMENT_SCHEMA

CONFORMS_TO = "http://mlcommons.org/croissant/1.0"
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_FILES = {
    BIN: ("application/octet-stream", "tokens, unsigned {bits}-bit little-endian, one document after another"),
    IDX: ("application/octet-stream", "Megatron's index: length and offset of each document"),
    DOCUMENTS: ("application/x-parquet", "a row a document, in the order of the tokens"),
    MANIFEST: ("application/json", "what the corpus is, by content: digests, counts, sources, curation"),
}
_COLUMNS = {
    "id": "unique in the corpus",
    "source": "URI of the file that the document came from",
    "offset": "documents before it in that file; of a web archive the first byte of its record",
    "licence": "SPDX expression, or words",
    "tokens": "number of tokens, the end-of-document token included",
    "digest": "sha256 of the tokens as little-endian uint32",
}


def croissant(corpus: Corpus, base: Path) -> dict[str, Any]:
    """The JSON-LD of a corpus.

    Args:
        corpus: the corpus.
        base: folder of the document; its files are named relative to it.

    Raises:
        EvidenceError: the document table cannot be read.
    """
    manifest = corpus.manifest
    shares = licences(corpus)
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": CONFORMS_TO,
        "name": f"{corpus.name}-{manifest['split']}",
        "description": _description(corpus, shares),
        "version": f"0.0.0+{short(corpus.digest)}",
        "url": f"urn:treering:corpus:{corpus.digest}",
        "identifier": corpus.digest,
        "license": [_licence(each.licence) for each in shares],
        "isBasedOn": list(manifest["source"]),
        "distribution": [_file(corpus, name, base) for name in _FILES],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "documents",
                "name": "documents",
                "description": _FILES[DOCUMENTS][1],
                "key": {"@id": "documents/id"},
                "field": [_field(field.name, str(field.type)) for field in DOCUMENT_SCHEMA],
            }
        ],
    }


def _description(corpus: Corpus, shares: tuple[LicenceShare, ...]) -> str:
    manifest = corpus.manifest
    steps = "; ".join(f"{step['step']} kept {step.get('kept')}" for step in manifest["curation"])
    terms = "; ".join(f"{each.licence}: {each.documents} documents, {each.tokens} tokens" for each in shares)
    return (
        f"Corpus {corpus.name}, split {manifest['split']}: {corpus.num_documents} documents of {corpus.num_tokens} "
        f"tokens, cut by tokenizer {manifest['tokenizer']['digest']}. Licences: {terms}. "
        f"Curation: {steps or 'none on record'}."
    )


def _licence(name: str) -> str:
    """A URL for a plain SPDX id, the words themselves for anything else."""
    plain = name.replace("-", "").replace(".", "").replace("+", "").isalnum() and not name.startswith("LicenseRef")
    return f"https://spdx.org/licenses/{name}.html" if plain else name


def _file(corpus: Corpus, name: str, base: Path) -> dict[str, Any]:
    path = corpus.directory / name
    entry = corpus.manifest["files"].get(name)  # the manifest does not list itself
    kind, words = _FILES[name]
    file = {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "description": words.format(bits=8 * int(corpus.manifest["token_width_bytes"])),
        "contentUrl": Path(os.path.relpath(path.resolve(), base.resolve())).as_posix(),
        "contentSize": f"{entry['size'] if entry else path.stat().st_size} B",
        "encodingFormat": kind,
        "sha256": (entry["sha256"] if entry else digest_file(path)).removeprefix(DIGEST_PREFIX),
    }
    return file | ({"md5": entry["dvc_md5"]} if entry else {})


def _field(name: str, kind: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"documents/{name}",
        "name": name,
        "description": _COLUMNS[name],
        "dataType": "sc:Integer" if kind == "int64" else "sc:Text",
        "source": {"fileObject": {"@id": DOCUMENTS}, "extract": {"column": name}},
    }

"""RO-Crate metadata of a capsule: what other programs read of it, by the library `rocrate`.

Source: RO-Crate 1.3 (https://w3id.org/ro/crate/1.3).
"""

import json
import re
import time
from typing import Any
from urllib.parse import quote

from treering.config.canonical import DIGEST_PREFIX, short
from treering.config.resolved import RUN_ID_LENGTH
from treering.errors import UserError
from treering.reproduce.capsule.contents import RECORD, RUN, Capsule

_TYPES = {
    ".diff": "text/x-diff",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".lock": "application/yaml",
    ".md": "text/markdown",
    ".tar": "application/x-tar",
    ".yaml": "application/yaml",
    ".zst": "application/zstd",
}
_PARTS = {
    RECORD: "Digest and size of every file, the corpora that the run needs, golden vectors of the data order",
    "README.md": "Instructions for people",
    "code": "The code of the run: changes against its commit, and the sources of the commit",
    "corpora": "Manifest of a corpus that the run read: digests, sizes, licence, sources; no text",
    "experiment.yaml": "The experiment as a person wrote it",
    RUN: "A record of the run, as it is in the folder of the run",
}
_SPDX = re.compile(r"(?!LicenseRef)[A-Za-z0-9][A-Za-z0-9.+-]*")


def _licence_place(name: str) -> str:
    """The address of an SPDX licence; a place in the document for other words."""
    return f"https://spdx.org/licenses/{name}" if _SPDX.fullmatch(name) else f"#licence-{quote(name, safe='')}"


def crate_metadata(capsule: Capsule, record_size: int) -> str:
    """The text of `ro-crate-metadata.json`: the same for the same capsule.

    Args:
        capsule: what the capsule holds.
        record_size: bytes of its `capsule.json`.

    Raises:
        UserError: the library is not installed.
    """
    try:
        from rocrate.model.contextentity import ContextEntity  # noqa: PLC0415 - an extra
        from rocrate.rocrate import ROCrate  # noqa: PLC0415 - see above
    except ImportError:
        raise UserError(
            "a capsule's RO-Crate metadata is made by rocrate, which is not installed: "
            "`pip install 'treering[attestation]'`"
        ) from None
    crate = ROCrate()
    run = short(capsule.run, RUN_ID_LENGTH)
    written = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(capsule.written_at))

    def add(place: str, kind: str, **properties: Any) -> Any:
        return crate.add(ContextEntity(crate, place, properties={"@type": kind, **properties}))

    crate.root_dataset["datePublished"] = written
    crate.root_dataset["identifier"] = add("#run", "PropertyValue", name="run", value=capsule.run)
    crate.name = f"Run {run} of experiment {capsule.experiment}"
    crate.description = (
        f"The records of a training run of {capsule.steps} steps, to make the run again. The corpora are not included."
    )
    crate.root_dataset["license"] = add(
        "#licence",
        "CreativeWork",
        name="Licence of the records",
        description="As the people state it who hand the capsule on. The corpora keep their own licences.",
    )
    sizes = {name: packed.size for name, packed in capsule.files.items()} | {RECORD: record_size}
    for name, size in sorted(sizes.items()):
        properties: dict[str, Any] = {"name": name, "contentSize": str(size)}
        properties["description"] = _PARTS.get(name.partition("/")[0], "Beside the records of the run")
        properties["encodingFormat"] = _TYPES.get(name[name.rfind(".") :], "application/octet-stream")
        if name in capsule.files:
            properties["sha256"] = capsule.files[name].digest.removeprefix(DIGEST_PREFIX)
        file = crate.add_file(dest_path=name, properties=properties)
        if name == RECORD:
            crate.root_dataset["mainEntity"] = file
    program = add(
        "#treering",
        "SoftwareApplication",
        name="Treering",
        version=capsule.treering,
        url=f"pkg:pypi/treering@{capsule.treering}",
    )
    licences = {
        name: add(_licence_place(name), "CreativeWork", name=name, description="As the manifest of a corpus states it")
        for name in sorted({each.licence for each in capsule.corpora})
    }
    corpora = [
        add(
            f"#corpus-{each.split}-{each.name}",
            "Dataset",
            name=each.name,
            description=f"Corpus {each.name} ({each.split}), {each.tokens} tokens; not in this capsule",
            identifier=each.digest,
            license=licences[each.licence],
        )
        for each in capsule.corpora
    ]
    action = add("#training", "CreateAction", name=f"Training of run {run}", endTime=written)
    action["instrument"] = program
    action["object"] = corpora
    action["result"] = crate.root_dataset
    crate.root_dataset["mentions"] = action
    return json.dumps(crate.metadata.generate(), indent=2, sort_keys=True) + "\n"

"""RO-Crate metadata of a capsule: what other programs read of it, by the library `rocrate`.

Source: RO-Crate 1.3 (https://w3id.org/ro/crate/1.3).
"""

import json
import time
from typing import Any

from treering.config.canonical import DIGEST_PREFIX, short
from treering.config.resolved import RUN_ID_LENGTH
from treering.errors import UserError
from treering.reproduce.capsule.contents import RECORD, Capsule

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
    crate.root_dataset["identifier"] = capsule.run
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
        properties["encodingFormat"] = _TYPES.get(name[name.rfind(".") :], "application/octet-stream")
        if name in capsule.files:
            properties["sha256"] = capsule.files[name].digest.removeprefix(DIGEST_PREFIX)
        crate.add_file(dest_path=name, properties=properties)
    program = add("#treering", "SoftwareApplication", name="Treering", version=capsule.treering)
    corpora = [
        add(
            f"#corpus-{each.split}-{each.name}",
            "Dataset",
            name=each.name,
            description=f"Corpus {each.name} ({each.split}), {each.tokens} tokens; not in this capsule",
            identifier=each.digest,
            license=each.licence,
        )
        for each in capsule.corpora
    ]
    action = add("#training", "CreateAction", name=f"Training of run {run}", endTime=written)
    action["instrument"] = program
    action["object"] = corpora
    action["result"] = crate.root_dataset
    crate.root_dataset["mentions"] = action
    return json.dumps(crate.metadata.generate(), indent=2, sort_keys=True) + "\n"

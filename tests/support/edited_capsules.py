"""Capsules that were edited, and records of theirs that were made to fit."""

import json
import zipfile

from treering.reproduce.capsule.contents import RECORD
from treering.runlog.document import document_text


def changed(packed, path, change):
    """A copy of the capsule whose entries `change` has edited: a list of (ZipInfo, content)."""
    with zipfile.ZipFile(packed.file) as archive:
        entries = [(info, archive.read(info)) for info in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for info, content in change(entries):
            archive.writestr(info, content, compress_type=info.compress_type)
    return path


def rewritten(name, edit):
    return lambda entries: [(info, edit(content) if info.filename == name else content) for info, content in entries]


def resealed(entries, edit):
    """The entries with a record that fits what `edit` made of its content."""

    def sealed(content):
        document = json.loads(content)
        document.pop("digest")
        edit(document)
        return document_text(document)[0].encode()

    return rewritten(RECORD, sealed)(entries)

"""Checks a signed checkpoint of the small project, and damages its files."""

from treering.audit.attestation.check import attested, check_attestation
from treering.audit.checkpoint import audit_checkpoint
from treering.runlog.find import find_checkpoint


def check(built, path, key, checkpoint=None):
    return check_attestation(path, [key.public], checkpoint or fresh(built), built.project)


def fresh(built):
    """The checkpoint read anew: a directory remembers what it has read."""
    return find_checkpoint(built.last.path)


def audit(built, *trusted, verify=False):
    return attested(audit_checkpoint(fresh(built), built.project, verify), fresh(built), trusted)


def flip(path, position=17):
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)

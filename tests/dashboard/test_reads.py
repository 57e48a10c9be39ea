"""What the steps of a run were fed: read in bulk, the same as ring by ring."""

import pytest
from damaged_run import edit_ring

from treering.errors import EvidenceError
from treering.metrics.same_data import compare_data
from treering.runlog.columns.fed import Fed, fed_of
from treering.runlog.directory import RunDirectory
from treering.runlog.ring_file import compress
from treering_dashboard.frames.reads import fed


def same(one: Fed, other: Fed) -> bool:
    counts = all(getattr(one, name).tolist() == getattr(other, name).tolist() for name in ("steps", "starts", "ends"))
    return counts and one.digests.to_pylist() == other.digests.to_pylist()


def test_steps_that_a_restart_abandoned_do_not_count(lay_run) -> None:
    run = RunDirectory(lay_run(restart_after=100))
    rings = list(run.path_rings())
    assert len(rings) < sum(len(list(attempt.rings())) for attempt in run.attempts())
    assert same(fed_of(run), Fed.of_rings(rings))


def test_a_compressed_file_and_a_torn_line_change_nothing(lay_run) -> None:
    run = RunDirectory(lay_run(steps=60))
    whole = Fed.of_rings(run.path_rings())
    (file,) = run.plain_ring_files()
    with file.open("ab") as torn:
        torn.write(b'{"applied":true,"batch_digest":"sha256:')
    assert same(fed_of(run), whole)
    other = RunDirectory(lay_run(steps=60, seed=2))
    (file,) = other.plain_ring_files()
    compress(file)
    assert not file.exists()
    assert compare_data(fed_of(other), whole).equal_steps == len(whole)


def test_up_to_a_changed_ring_the_dashboard_reads_one_by_one(lay_run) -> None:
    path = lay_run(steps=60)
    edit_ring(path, 30)
    run = RunDirectory(path)
    with pytest.raises(EvidenceError, match="line 30"):
        fed_of(run)
    assert fed(run).steps.tolist() == list(range(1, 30))

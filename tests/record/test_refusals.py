"""What `treering.start` and its run refuse: a report that no reader could read, named with its field."""

from pathlib import Path

import numpy as np
import pytest

from treering.errors import UserError
from treering.record.start import start
from treering.runlog.journal import AttemptEnded
from treering.runlog.recorded_directory import RecordedRunDirectory


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_report_that_no_reader_could_read_is_refused_and_the_run_goes_on():
    reports = {
        r"step: found 5 without a name, expected numbers by name such as run\.step\(loss=loss\)": lambda run: run.step(
            5
        ),
        "metrics: found 1 as a name, expected a text": lambda run: run.step({1: 2.0}),
        r"metrics: found 'a\\udc80' as a name, expected a text": lambda run: run.step({"a\udc80": 2.0}),
        "loss: found 1000*, expected a number": lambda run: run.step(loss=10**400),
        r"step: found 20\.7, expected the number of a step": lambda run: run.step(step=20.7),
        "step: found 'next', expected a number": lambda run: run.step(step="next"),
        "step: found 9223372036854775808, expected the number of a step": lambda run: run.step(step=2**63),
        "score: found 1 as a name, expected a text": lambda run: run.score(1, "eval", {1: 0.5}),
        r"score: found 1\.5, expected the number of a step": lambda run: run.score(1.5, "eval", {"acc": 0.5}),
        r"tag: found \['keep'\] as a name, expected a text": lambda run: run.tag(["keep"]),
    }
    run = start("plain")
    run.step(loss=1.0)
    for message, report in reports.items():
        with pytest.raises(UserError, match=message):
            report(run)
    run.step(step=np.int64(3), loss=1.0)
    run.finish()
    found = RecordedRunDirectory(run.path)
    assert [ring.step for ring in found.attempts()[0].rings()] == [1, 3]
    assert [type(line.entry) for line in found.journal.lines()] == [AttemptEnded]


def test_tags_are_a_list():
    with pytest.raises(UserError, match=r"tags: found the text 'keep', expected a list of texts: tags=\['keep'\]"):
        start("plain", tags="keep")
    assert not Path("runs").exists()

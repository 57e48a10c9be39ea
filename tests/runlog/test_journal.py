"""The journal: an append-only chain that several processes write; a kill leaves it readable, an edit is named."""

import multiprocessing
import os
import signal
import time

import pytest

from treering.config.canonical import canonical_json, digest_json
from treering.errors import EvidenceError
from treering.runlog.journal import CheckpointRemoved, CheckpointSaved, Journal

RECIPE = "sha256:" + "a" * 64
CHECKPOINT = "sha256:" + "c" * 64


def saved(step):
    return CheckpointSaved(at=1.5, step=step, attempt=1, checkpoint=CHECKPOINT)


@pytest.fixture
def journal(tmp_path):
    return Journal(tmp_path / "run" / "journal.jsonl", RECIPE)


def append_steps(path, first, count):
    journal = Journal(path, RECIPE)
    for step in range(first, first + count):
        journal.append(saved(step))


def test_entries_are_read_back_in_order_and_chained(journal):
    assert (journal.exists, journal.lines(), journal.head()) == (False, [], RECIPE)
    entries = [saved(5), CheckpointRemoved(at=2.0, step=5, checkpoint=None, reason="no rule keeps it")]
    digests = [journal.append(entry) for entry in entries]
    assert [line.entry for line in journal.lines()] == entries
    assert [line.digest for line in journal.lines()] == digests
    assert journal.head() == digests[1]
    content = {**entries[0].model_dump(mode="json"), "prev": RECIPE}
    assert digests[0] == digest_json(content)
    first = journal.path.read_text().split("\n")[0]
    assert first == canonical_json({**content, "digest": digests[0]})


def test_several_processes_append_at_once(journal):
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=append_steps, args=(journal.path, 100 * number, 20)) for number in (1, 2, 3, 4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    steps = [line.entry.step for line in journal.lines()]
    assert sorted(steps) == [100 * number + each for number in (1, 2, 3, 4) for each in range(20)]
    assert [step for step in steps if step < 200] == list(range(100, 120))


def test_a_writer_that_is_killed_costs_its_last_entry_at_most(journal):
    fork = multiprocessing.get_context("fork")
    kept = 0
    for number in range(1, 6):
        writer = fork.Process(target=append_steps, args=(journal.path, 1000 * number, 1000))
        writer.start()
        while len(journal.lines()) == kept:
            time.sleep(0.001)
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        journal.append(saved(9999))
        lines = journal.lines()
        assert (lines[-1].entry.step, journal.torn()) == (9999, 0)
        mine = [line.entry.step for line in lines if 1000 * number <= line.entry.step < 1000 * (number + 1)]
        assert mine == list(range(1000 * number, 1000 * number + len(mine)))
        kept = len(lines)


def test_a_line_that_was_never_finished_is_replaced(journal):
    journal.append(saved(1))
    with journal.path.open("a") as file:
        file.write('{"kind":"checkpoint_sav')
    assert (journal.torn(), [line.entry.step for line in journal.lines()]) == (23, [1])
    journal.append(saved(2))
    assert (journal.torn(), [line.entry.step for line in journal.lines()]) == (0, [1, 2])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda lines: [lines[0].replace('"step":1', '"step":9'), *lines[1:]], r"line 1: digest .*: the entry was ch"),
        (lambda lines: lines[1:], "line 1: prev is not .*, the digest of the run's recipe"),
        (lambda lines: [lines[0], lines[2]], "line 2: prev is not .*, the digest of line 1: an entry was removed"),
        (lambda lines: [lines[1], lines[0], lines[2]], "line 1: prev is not"),
        (lambda lines: ["[]", *lines[1:]], "line 1: not an entry of a journal"),
    ],
)
def test_a_changed_journal_is_named_by_line_and_says_what_helps(journal, change, said):
    append_steps(journal.path, 1, 3)
    lines = journal.path.read_text().splitlines()
    journal.path.write_text("".join(line + "\n" for line in change(lines)))
    with pytest.raises(EvidenceError, match=rf"journal\.jsonl {said}.*; restore the journal from a copy"):
        journal.lines()


def test_nothing_is_appended_after_a_changed_entry(journal):
    append_steps(journal.path, 1, 2)
    text = journal.path.read_text().replace('"step":2', '"step":3')
    journal.path.write_text(text)
    with pytest.raises(EvidenceError, match=r"line 2: digest .* the entry was changed; restore"):
        journal.append(saved(4))
    assert journal.path.read_text() == text


def test_the_head_is_read_from_the_last_line_alone(journal):
    append_steps(journal.path, 1, 300)
    head = journal.lines()[-1].digest
    journal.path.write_text("changed\n" + journal.path.read_text() + '{"kind":"torn')
    assert (journal.head(), journal.torn()) == (head, 13)
    with pytest.raises(EvidenceError, match="line 1: not an entry"):
        journal.lines()
    journal.path.write_text(journal.path.read_text().replace('"step":300', '"step":301'))
    with pytest.raises(EvidenceError, match=r"line 301: digest .* the entry was changed; restore"):
        journal.head()


def test_the_journal_of_another_run_is_named(journal):
    journal.append(saved(1))
    with pytest.raises(EvidenceError, match="or the journal is another run's"):
        Journal(journal.path, CHECKPOINT).lines()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "gossip"}, "kind is 'gossip', expected checkpoint_saved"),
        ({"step": 0}, "step: Input should be greater than 0"),
        ({"step": "1"}, "step is '1', expected 1: a value of another type"),
        ({"more": 1}, "more: Extra inputs are not permitted"),
    ],
)
def test_an_entry_of_another_form_is_named(journal, changes, said):
    content = {**saved(1).model_dump(mode="json"), "prev": RECIPE} | changes
    journal.path.parent.mkdir(parents=True)
    journal.path.write_text(canonical_json({**content, "digest": digest_json(content)}) + "\n")
    with pytest.raises(EvidenceError, match=f"line 1: {said}"):
        journal.lines()

"""Parts of the trainer that need no training."""

import os
import re
import signal
import socket
import termios
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from recorded_project import unpack
from trained import resolved

from treering.cli.commands.train import train
from treering.collect.code import code_record
from treering.config.layout import Layout
from treering.data.order.batch import read_samples, sample_digests
from treering.data.order.treering1 import DataOrder
from treering.errors import EvidenceError, UserError
from treering.reproduce.trial import _changes as changes_since
from treering.runlog.directory import RunDirectory
from treering_trainer.checkpointing.resume import differences, find_finished
from treering_trainer.core.batch_reader import BatchReader, open_corpora, text_digest, verified_digests
from treering_trainer.launch.devices import Hardware, choose_layout
from treering_trainer.monitor.hooks import FailOpen, Hook, ProgressLine
from treering_trainer.monitor.processes import (
    EXIT_CONTACT_LOST,
    MeetingPoint,
    RankEnd,
    RankFailedError,
    Ranks,
    describe,
)

pytestmark = pytest.mark.trainer

RING = SimpleNamespace(
    step=3,
    loss=4.5,
    grad_norm=1.25,
    learning_rate=1e-3,
    global_batch_size=8,
    tokens_per_second=5120.0,
    time_s={"step": 2.0},
    validation={"loss": 4.75},
)
RINGS = [RING] * 5000

CPU = Hardware("cpu", 0, (), "")

ROOT = Path(__file__).parents[2]


def test_replicas_read_the_batch_between_them(project):
    blend = resolved(project).blend
    rng = np.random.default_rng(0)
    corpora = [
        SimpleNamespace(tokens=rng.integers(0, 400, component.num_tokens, dtype=np.uint16).__getitem__)
        for component in blend.components
    ]
    sources = [SimpleNamespace(tokens=lambda a, b, c=corpus: c.tokens(slice(a, b))) for corpus in corpora]
    order = DataOrder(blend)
    whole = read_samples(order, sources, 24, 36)
    layout = Layout(tensor=1, pipeline=1, data=3, micro_batch_size=2)
    found = {}
    for data in range(3):
        batch = BatchReader(order, sources, layout.coordinates(data)).read(24, 36)
        assert len(batch.micro_batches) == 2
        for m, (inputs, labels) in enumerate(batch.micro_batches):
            for row in range(2):
                number = (m * 3 + data) * 2 + row
                found[number] = text_digest(batch.digests[m * 2 + row])
                assert (inputs[row].numpy() == whole[number, :-1]).all()
                assert (labels[row].numpy() == whole[number, 1:]).all()
    assert [found[number] for number in range(12)] == sample_digests(whole)


@pytest.mark.parametrize(("field", "value"), [("num_tokens", 999), ("num_documents", None), ("num_documents", 7)])
def test_a_size_that_was_edited_in_the_blend_starts_no_training(project, field, value):
    blend = resolved(project).blend
    first, *others = blend.components
    edited = blend.model_copy(update={"components": (first.model_copy(update={field: value}), *others)})
    assert edited.digest == blend.digest
    text = f"blend: {field} of corpus letters is {value}, expected {getattr(first, field)} by the manifest"
    with pytest.raises(EvidenceError, match=text):
        open_corpora(project, edited)
    assert [corpus.name for corpus in open_corpora(project, blend)] == ["letters", "numbers"]


def test_a_corpus_under_another_name_starts_no_training(project):
    path = project.corpus("letters") / "manifest.json"
    kept = path.read_text()
    path.write_text(kept.replace('"name": "letters"', '"name": "figures"'))
    try:
        with pytest.raises(EvidenceError, match="name is figures, expected letters by the blend"):
            open_corpora(project, resolved(project).blend)
    finally:
        path.write_text(kept)


def test_damaged_bytes_of_a_corpus_start_no_training(project):
    corpora = open_corpora(project, resolved(project).blend)
    path = corpora[0].directory / "corpus.bin"
    kept = path.read_bytes()
    path.write_bytes(bytes([kept[0] ^ 1]) + kept[1:])
    said = rf"^{re.escape(str(path))}: corpus letters, bytes 0 to {len(kept):,} \(chunk 0\): found sha256:\w+, expected"
    try:
        with pytest.raises(EvidenceError, match=said):
            verified_digests(corpora)
    finally:
        path.write_bytes(kept)
    assert verified_digests(corpora) == {corpus.name: corpus.digest for corpus in corpora}


def test_middle_stage_reads_nothing(project):
    order = DataOrder(resolved(project).blend)
    layout = Layout(tensor=1, pipeline=3, data=1, micro_batch_size=2)
    batch = BatchReader(order, [], layout.coordinates(1)).read(0, 8)
    assert batch.micro_batches == ()
    assert batch.digests.shape == (0, 32)


@pytest.mark.parametrize(
    ("settings", "hardware", "expected"),
    [
        ((), CPU, "1x1x2"),
        (("parallel.pipeline=2",), CPU, "1x2x1"),
        (("parallel.cpu_processes=4", "parallel.micro_batch_size=1"), CPU, "1x1x4"),
        (("parallel.tensor=2",), Hardware("cuda", 4, (), ""), "2x1x2"),
        (("parallel.data=1",), Hardware("cuda", 8, (), ""), "1x1x1"),
    ],
)
def test_layout(settings, hardware, expected, project):
    layout, note = choose_layout(resolved(project, *settings), hardware)
    assert str(layout) == expected
    assert note == ""
    assert layout.backend == ("nccl" if hardware.count else "gloo")


def test_replicas_are_fewer_where_batches_do_not_divide(project):
    layout, note = choose_layout(resolved(project), Hardware("cuda", 8, (), ""))
    assert str(layout) == "1x1x2"
    assert "data parallel size 2 instead of 8" in note


def test_impossible_layouts(project):
    two = resolved(project, "parallel.tensor=2", "parallel.pipeline=2")
    with pytest.raises(UserError, match="needs 4 GPUs, this node has 2"):
        choose_layout(two, Hardware("cuda", 2, (), ""))
    explicit = resolved(project, "parallel.data=2")
    with pytest.raises(UserError, match="has 2 ranks, WORLD_SIZE is 3"):
        choose_layout(explicit, CPU, world_size=3)


def ends(*codes):
    return Ranks(ended=[RankEnd(rank, 100 + rank, code, rank) for rank, code in enumerate(codes)])


def test_blames_the_rank_that_was_killed():
    """The others lose contact and fail as well, often first."""
    assert ends(1, 1, -9).culprit().rank == 2
    assert ends(1, 5, 1).culprit().rank == 1
    assert ends(1, 1).culprit().rank == 0
    assert ends(EXIT_CONTACT_LOST, 1).culprit().rank == 1
    assert ends(0, 0).culprit() is None
    assert ends(75, 75).culprit() is None


def test_a_signal_of_the_user_is_no_failure():
    ranks = ends(-9, 1, 3)
    assert not any(ranks.stopped_by(end) for end in ranks.ended)
    ranks.stop_signal = signal.SIGINT
    assert [ranks.stopped_by(end) for end in ranks.ended] == [True, True, False]


def test_describes_the_end():
    assert describe(RankEnd(1, 7, -11, 0)) == "rank 1 (process 7) was killed by SIGSEGV"
    assert describe(RankEnd(1, 7, 5, 0)) == "rank 1 (process 7) failed with exit code 5"
    assert describe(RankEnd(1, 7, -9, 0, "training step 6", out_of_memory=True)) == (
        "rank 1 (process 7) was killed by SIGKILL while training step 6, perhaps out of memory: the kernel killed a "
        "process for memory meanwhile"
    )
    assert "memory" not in describe(RankEnd(1, 7, 5, 0, "training step 6", out_of_memory=True))


@pytest.mark.parametrize(("code", "exit_code"), [(-9, 75), (1, 5), (5, 5), (3, 3), (2, 2), (EXIT_CONTACT_LOST, 75)])
def test_the_launchers_exit_code_is_one_of_the_documented(code, exit_code):
    assert RankFailedError(RankEnd(0, 7, code, 0), None, "").exit_code == exit_code


def test_a_hook_that_fails_is_left_out_and_ends_nothing(capsys):
    calls = []

    class Good(Hook):
        def after_ring(self, ring):
            calls.append(ring)

        def close(self):
            calls.append("closed")

    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        hooks = FailOpen([ProgressLine(closed), Good()])
        hooks.before_training(0, 10)  # a broken pipe
        hooks.after_ring(RING)
        hooks.close()
    assert calls == [RING, "closed"]
    assert capsys.readouterr().err.count("ProgressLine failed and is left out: BrokenPipeError") == 1


@pytest.mark.parametrize("kind", ["a terminal that nobody reads", "Ctrl-S", "a full pipe"])
def test_a_terminal_that_takes_nothing_stops_nobody(kind):
    reader, writer = os.pipe() if kind == "a full pipe" else os.openpty()
    if kind == "Ctrl-S":
        termios.tcflow(writer, termios.TCOOFF)
    with os.fdopen(writer, "w", closefd=False) as stream:
        progress = ProgressLine(stream)

        def call():
            progress.before_training(2, 9)
            for ring in RINGS:
                progress.after_ring(ring)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
        lost = progress._terminal.lost
        assert lost > len(RINGS) / 2
        if kind == "Ctrl-S":
            assert lost >= 1 + 2 * len(RINGS) - 65, "64 wait, one is being written"
        if kind == "Ctrl-S":
            termios.tcflow(writer, termios.TCOON)
        printed = os.read(reader, 4096)
        assert printed.startswith(b"training steps 3 to 9" if kind == "a full pipe" else b"\rtraining steps 3 to 9")
        os.close(reader)  # lets the thread end


def test_progress_on_a_terminal_and_elsewhere():
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as plain:
        progress = ProgressLine(plain)
        progress.before_training(2, 33)
        progress.after_ring(RING)
        progress.close()
    with os.fdopen(reader) as written:
        assert written.read().splitlines() == [
            "training steps 3 to 33",
            "step 3  validation loss 4.7500",
            "step 3/33  loss 4.5000  grad norm 1.25  lr 1.00e-03  batch 8  5,120 tokens/s  1:00 left",
        ]
    reader, writer = os.openpty()
    with os.fdopen(writer, "w") as terminal:
        live = ProgressLine(terminal)
        live.before_training(2, 33)
        live.after_ring(RING)
        live.close()
        printed = ""
        while not printed.endswith("left\r\n"):  # the kernel hands a terminal's output over in pieces
            printed += os.read(reader, 4096).decode()
    os.close(reader)
    assert "\rstep 3/33" in printed


def test_differences_name_what_changed():
    def header(**changes):
        return SimpleNamespace(
            attempt=1,
            code={"digest": "a", "sources": {"x.py": "1", "y.py": "1"}},
            environment={
                "digest": "e",
                "numeric_packages": {"torch": "2"},
                "variables": {},
                "python": {"version": "3.11"},
                "device_kinds": ["cpu"],
                "threads_per_rank": 1,
            }
            | changes,
            layout="1x1x2",
        )

    same = header()
    assert differences(same, same.code, same.environment, "1x1x2") == ()
    code = {"digest": "b", "sources": {"x.py": "1", "y.py": "2", "z.py": "1"}}
    other = header(digest="f", numeric_packages={"torch": "3"}, variables={"OMP_X": "1"}, threads_per_rank=2)
    assert differences(same, code, other.environment, "2x1x1") == (
        "code (y.py, z.py)",
        "environment (package torch, variable OMP_X)",
        "threads of a rank (1 to 2)",
        "layout (1x1x2 to 2x1x1, TP x PP x DP, or its micro-batch or device)",
    )


@pytest.mark.parametrize("archive", ["earlier", "journals"])
def test_a_finished_run_by_an_earlier_rule_of_the_code_digest_stays_finished(archive, tmp_path):
    root = unpack(archive, tmp_path)
    (run,) = [RunDirectory(path) for path in (root / "runs").iterdir()]
    header = run.attempts()[-1].header
    assert "rule" not in header.code
    found = find_finished(
        run,
        12,
        code=code_record(ROOT),
        environment=header.environment,
        layout=header.layout,
        continue_changed=False,
    )
    assert found.checkpoint.step == 12
    assert found.changed == (
        "code (recorded by an earlier rule of the code digest; whether the code is the same cannot be said)",
    )


def test_a_replay_from_nothing_names_what_changed():
    def header(rule, code, environment):
        sources = {"core/model.py": code}
        return SimpleNamespace(
            changed=(), code={"rule": rule, "digest": code, "sources": sources}, environment={"digest": environment}
        )

    now = header("syntax-1", "a", "e")
    assert changes_since(now, now) == ()
    assert changes_since(header("syntax-1", "b", "f"), now) == ("code (core/model.py)", "environment")
    assert changes_since(header(None, "a", "e"), now) == (
        "code (recorded by an earlier rule of the code digest; whether the code is the same cannot be said)",
    )


def test_start_over_and_continue_changed_exclude_each_other():
    with pytest.raises(UserError, match="found both --continue-changed and --start-over, expected one of them"):
        train(continue_changed=True, start_over=True)


def test_the_port_at_which_ranks_meet_is_taken_before_they_start():
    meeting = MeetingPoint()
    port = int(meeting.variables["MASTER_PORT"])
    with socket.socket() as other, pytest.raises(OSError, match="Address already in use"):
        other.bind(("127.0.0.1", port))
    early = socket.create_connection(("127.0.0.1", port))  # a rank that comes before the store waits
    store = meeting.serve()
    rank = torch.distributed.TCPStore("127.0.0.1", port, is_master=False)
    rank.set("from", "rank 1")
    assert store.get("from") == b"rank 1"
    early.close()

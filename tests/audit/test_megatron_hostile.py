"""Hostile and damaged save folders of Megatron: each ends soon in an answer or in an error of ours."""

import os
import shutil
import signal

import hostile_megatron
import pytest
from typer.testing import CliRunner

from treering.audit.megatron.run import AuditedRun
from treering.cli import app
from treering.errors import TreeringError

pytestmark = pytest.mark.slow

FOLDERS = int(os.environ.get("TREERING_HOSTILE_FOLDERS", "300"))
SHARES = 10
SECONDS = 5.0


class TookTooLongError(BaseException):
    """Passes every handler of exceptions."""


@pytest.fixture
def bounded():
    """Ends a question after 5 s of the processor's time, and after a minute that it waits for something."""

    def stop(*_):
        raise TookTooLongError

    kept = [signal.signal(each, stop) for each in (signal.SIGALRM, signal.SIGPROF)]
    yield
    signal.setitimer(signal.ITIMER_PROF, 0)
    signal.alarm(0)
    for each, handler in zip((signal.SIGALRM, signal.SIGPROF), kept, strict=True):
        signal.signal(each, handler)


def asked(path):
    """Everything that can be asked of a run."""
    run = AuditedRun.open(path)
    report = run.report()
    assert report.level == ("declared" if report.findings or report.unbound else "re-derived")
    for step in {1, run.iteration}:
        run.step(step)
    run.exposures(f"{run.order.components[0].corpus}:0")
    return report.to_json()


@pytest.mark.usefixtures("bounded")
@pytest.mark.parametrize("share", range(SHARES))
def test_a_hostile_folder_ends_in_an_answer_or_in_an_error_of_ours(tmp_path, monkeypatch, share):
    for seed in range(share, FOLDERS, SHARES):
        root = tmp_path / str(seed)
        root.mkdir()
        monkeypatch.chdir(root)
        path = hostile_megatron.hostile_folder(root, seed)
        kind = hostile_megatron.MAKERS[seed % len(hostile_megatron.MAKERS)].__name__
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(60)
        try:
            asked(path.relative_to(root))
        except TreeringError:
            pass  # an error by name
        except BaseException as error:
            error.add_note(f"seed {seed}, {kind}")
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.alarm(0)
        shutil.rmtree(root, ignore_errors=True)


def test_the_command_ends_without_a_traceback(tmp_path, monkeypatch):
    for seed in range(13):
        root = tmp_path / str(seed)
        root.mkdir()
        monkeypatch.chdir(root)
        path = hostile_megatron.hostile_folder(root, 26_000 + 2 * seed)
        result = CliRunner().invoke(app, ["audit", "--megatron-run", str(path.relative_to(root))])
        assert result.exception is None or isinstance(result.exception, TreeringError | SystemExit), (seed, result)

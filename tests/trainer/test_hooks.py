"""Hooks of an installed package that a config names: called at every moment, killed, and resumed with their state."""

import json
import re
import subprocess
import sys
from itertools import chain
from pathlib import Path

import pytest
from trained import numbers, resolved, rings, run_of

from treering.audit.inventory import verify_paths
from treering.config.load import load_experiment
from treering.config.operation import HookConfig
from treering.errors import ConfigError, ManyConfigError
from treering_trainer.monitor import installed_hooks
from treering_trainer.monitor.hooks import FailOpen, Hook
from treering_trainer.monitor.installed_hooks import hook_sources, make_hooks

PAGE = Path(__file__).parents[2] / "docs/trainer.md"

COUNTER = """
import json
from pathlib import Path
from treering_trainer.monitor.hooks import Hook

class Counter(Hook):
    def __init__(self, folder, fail_at=0):
        if not isinstance(fail_at, int):
            raise ValueError("fail_at is a step")
        self.folder, self.fail_at, self.calls, self.before = Path(folder), fail_at, [], 0

    def note(self, *what):
        self.calls.append(what)

    def before_training(self, start_step, num_steps):
        self.note("before_training", start_step, num_steps)

    def before_step(self, step):
        self.note("before_step", step)

    def after_step(self, step, values):
        self.note("after_step", step, sorted(values))

    def after_ring(self, ring):
        if ring.step == self.fail_at:
            raise RuntimeError("no room")
        self.before += 1
        self.note("after_ring", ring.step)

    def after_checkpoint(self, step, seconds):
        self.note("after_checkpoint", step)

    def on_error(self, error):
        self.note("on_error", type(error).__name__)

    def close(self):
        import os
        (self.folder / f"calls-{os.environ['RANK']}.json").write_text(json.dumps(self.calls))

    def state(self):
        return {"rings": self.before}

    def load_state(self, state):
        self.before = state["rings"]
        self.note("load_state", state["rings"])

class NotAHook:
    pass
"""
ENTRY_POINTS = """[treering.hooks]
counter = counting:Counter
stranger = counting:NotAHook
missing = nowhere:Hook
"""
NAMES = "one of best_loss, counter, missing, stranger"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder of installed packages: the one of the docs, by pip, and a counter."""
    source, folder = tmp_path_factory.mktemp("best-loss"), tmp_path_factory.mktemp("site-packages")
    page = PAGE.read_text()
    (source / "pyproject.toml").write_text(re.search(r"```toml\n(.*?)```", page, re.DOTALL)[1])
    (source / "best_loss.py").write_text(re.search(r"```python\n(from pathlib.*?)```", page, re.DOTALL)[1])
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder), str(source)], check=True)
    (folder / "counting.py").write_text(COUNTER)
    (folder / "counting-2.1.dist-info").mkdir()
    (folder / "counting-2.1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 2.1\n")
    (folder / "counting-2.1.dist-info/entry_points.txt").write_text(ENTRY_POINTS)
    return str(folder)


@pytest.fixture
def names(installed, monkeypatch):
    monkeypatch.syspath_prepend(installed)


def counter(folder, **options):
    folder.mkdir(exist_ok=True)
    return f"{{name: counter, options: {json.dumps({'folder': str(folder), **options})}}}"


@pytest.mark.slow
@pytest.mark.trainer
def test_hooks_of_packages_are_called_killed_and_resumed_with_their_state(
    zygote, project, reference, installed, tmp_path
):
    calls, best, runs = tmp_path / "calls", tmp_path / "best.txt", tmp_path / "runs"
    hooks = f"--set=hooks=[{counter(calls)}, {{name: best_loss, options: {{file: {best}}}}}]"
    zygote.train(project, runs, hooks, expect=-9, install={"folder": installed}, kill_after_ring={"step": 10})
    zygote.train(project, runs, hooks, install={"folder": installed})
    run = run_of(runs)
    assert run.id == reference.id, "hooks do not belong to the recipe"
    assert numbers(rings(run)) == numbers(rings(reference)), "hooks change no number"

    lead, other = (json.loads((calls / f"calls-{rank}.json").read_text()) for rank in (0, 1))
    keys = ["rank/communication", "rank/compute", "rank/step", "rank/tflops"]
    steps = [[["before_step", step], ["after_step", step, keys]] for step in range(9, 16)]
    begun = [["load_state", 8], ["before_training", 8, 15]]
    assert other == begun + list(chain(*steps))
    saved = {12: [["after_checkpoint", 12]], 15: [["after_checkpoint", 15]]}
    expected = [[*both, ["after_ring", step], *saved.get(step, [])] for step, both in enumerate(steps, 9)]
    assert lead == begun + list(chain(*expected))

    losses = {ring.loss: ring.step for ring in rings(run)}
    final = run.checkpoints()[-1]
    assert json.loads(final.hooks_file.read_text()) == {
        "best_loss": {"best": min(losses), "rings": 15},
        "counter": {"rings": 15},
    }
    assert best.read_text() == f"step {losses[min(losses)]}: {min(losses):.4f}\n"
    assert [(each.name, each.distribution, each.version) for each in run.attempts()[0].header.hooks] == [
        ("counter", "counting", "2.1"),
        ("best_loss", "best-loss", "1.0"),
    ]

    assert "hooks.json" in {file.path for file in final.manifest.files}
    assert verify_paths(project, [run.path]).findings == ()
    final.hooks_file.write_text(final.hooks_file.read_text().replace('"rings":15', '"rings":16'))
    (finding,) = verify_paths(project, [run.path]).findings
    assert "hooks.json" in str(finding)


@pytest.mark.slow
@pytest.mark.trainer
def test_a_hook_that_raises_is_left_out_and_a_new_one_starts_fresh(zygote, project, reference, installed, tmp_path):
    calls, runs = tmp_path / "calls", tmp_path / "runs"
    zygote.train(project, runs, "--stop-after=4", expect=75)
    hooks = f"--set=hooks=[{counter(calls, fail_at=6)}]"
    zygote.train(project, runs, hooks, install={"folder": installed})
    run = run_of(runs)
    assert numbers(rings(run)) == numbers(rings(reference))
    log = (run.path / "attempts/0002/logs/rank-0.log").read_text()
    assert log.count("hook counter starts without state: the checkpoint has none of it") == 1
    assert log.count("Counter failed and is left out: RuntimeError('no room')") == 1
    calls = json.loads((calls / "calls-0.json").read_text())
    assert calls[-1][:2] == ["after_step", 6], "it is closed, and not called after its failure"
    assert not run.checkpoints()[-1].hooks_file.exists()


@pytest.mark.slow
@pytest.mark.trainer
def test_state_goes_along_into_another_layout(zygote, project, installed, tmp_path):
    calls, runs = tmp_path / "calls", tmp_path / "runs"
    hooks = f"--set=hooks=[{counter(calls)}]"
    zygote.train(project, runs, hooks, "--stop-after=6", expect=75, install={"folder": installed})
    options = ("--set=parallel.data=1", "--continue-changed")
    zygote.train(project, runs, hooks, *options, install={"folder": installed})
    run = run_of(runs)
    assert run.attempts()[-1].header.converted is not None
    assert json.loads((calls / "calls-0.json").read_text())[:2] == [["load_state", 6], ["before_training", 6, 15]]
    assert json.loads(run.checkpoints()[-1].hooks_file.read_text()) == {"counter": {"rings": 15}}


@pytest.mark.slow
@pytest.mark.trainer
def test_an_error_of_the_config_ends_the_start(zygote, project, installed, tmp_path):
    printed = zygote.train(project, tmp_path, "--set=hooks=[{name: best_los}]", expect=2, install={"folder": installed})
    assert (
        "hooks.0.name: found 'best_los', expected one of best_loss, counter, missing, stranger; did you mean" in printed
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("names")
@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            {"name": "count"},
            f"hooks.0.name: found 'count', expected {NAMES}; did you mean counter?",
        ),
        ({"name": "stranger"}, "hooks.0.name: found 'stranger', which is counting:NotAHook, expected a subclass of"),
        ({"name": "missing"}, "hooks.0.name: found 'missing', which cannot be imported: ModuleNotFoundError"),
        ({"name": "counter"}, "hooks.0.options.folder: found nothing, expected a value"),
        (
            {"name": "counter", "options": {"folder": ".", "foldr": "."}},
            "hooks.0.options.foldr: found an unknown option, expected one of folder, fail_at",
        ),
        (
            {"name": "counter", "options": {"folder": ".", "fail_at": "six"}},
            'hooks.0.options: found {"fail_at":"six","folder":"."}, expected what hook counter takes: fail_at is',
        ),
    ],
)
def test_what_cannot_be_made_is_an_error_of_the_config(config, text):
    with pytest.raises(ConfigError, match=re.escape(f"a.yaml: {text}")):
        make_hooks([HookConfig(**config)], "a.yaml")


@pytest.mark.usefixtures("names")
def test_all_errors_of_hooks_come_at_once():
    configs = [HookConfig(name="counter", options={"foldr": "."}), HookConfig(name="count")]
    with pytest.raises(ManyConfigError, match=r"a\.yaml: 3 errors") as caught:
        make_hooks(configs, "a.yaml")
    assert [error.path for error in caught.value.errors] == [
        "hooks.0.options.foldr",
        "hooks.0.options.folder",
        "hooks.1.name",
    ]


def test_without_packages_there_is_no_hook_to_name(monkeypatch):
    monkeypatch.setattr(installed_hooks, "GROUP", "treering.no_such_group")
    with pytest.raises(ConfigError, match="no package has hooks"):
        make_hooks([HookConfig(name="counter")], "a.yaml")


@pytest.mark.usefixtures("names")
def test_sources_are_those_of_the_packages():
    (found,) = hook_sources([HookConfig(name="counter")])
    assert found.model_dump() == {
        "name": "counter",
        "object": "counting:Counter",
        "distribution": "counting",
        "version": "2.1",
    }


def test_a_name_twice_is_refused(project):
    with pytest.raises(ConfigError, match="hooks: found counter twice, expected each name once"):
        load_experiment(project.root / "tiny.yaml", ["hooks=[{name: counter}, {name: counter}]"])


def test_hooks_change_neither_id_nor_a_config_without_them(project):
    without, with_hooks = resolved(project), resolved(project, "hooks=[{name: counter, options: {folder: x}}]")
    assert "hooks" not in without.to_json()["attempt"]
    assert with_hooks.to_json()["attempt"]["hooks"] == [{"name": "counter", "options": {"folder": "x"}}]
    assert with_hooks.run_id == without.run_id
    assert with_hooks.digests["attempt"] != without.digests["attempt"]


class Stateful(Hook):
    def __init__(self, value):
        self.value = value

    def state(self):
        return {"value": self.value}

    def load_state(self, state):
        self.value = state["value"]


def test_state_is_kept_by_name_as_json_values(capsys):
    plain, wrong, endless = Stateful((1, 2)), Stateful({3}), Stateful(float("nan"))
    hooks = FailOpen([Stateful("built in")], {"plain": plain, "wrong": wrong, "endless": endless, "none": Hook()})
    assert hooks.state() == {"plain": {"value": [1, 2]}}
    printed = capsys.readouterr().err
    assert "Object of type set is not JSON serializable" in printed
    assert "Out of range float values are not JSON compliant" in printed
    hooks.load_state({"plain": {"value": 7}, "gone": {"value": 8}})
    assert plain.value == 7
    assert "hook gone is not in the config: its state in the checkpoint is not used" in capsys.readouterr().err

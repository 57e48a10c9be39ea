"""An address that asks for what is not there is answered by "No such …", never by something else that is there."""

import shutil

import pytest
from audited_project import cut_checkpoint
from dashboard_page import page, texts

from treering.runlog.directory import RunDirectory
from treering.runlog.find import find_runs

HOSTILE = ["", "zzz", "0", "1", "-1", "../../etc/passwd", "<b>x</b>", "$x$ :red[y]", "☃", "a" * 5000, "None", "true "]
NO_NUMBERS = ["", "0", "-1", "1.5", "1e3", "x", "\uff19", " 7", "+7", "99999999999999999999999", "0x10", "1_000", "nan"]


def refused(name: str, title: str, key: str, values: list, **rest: object) -> None:
    """Every value ends the page with the title, and nothing of a run is shown."""
    app = page(name, **rest, **{key: values[0]})
    for value in values:
        app.query_params[key] = value
        app.run()
        assert not app.exception
        assert [error.value for error in app.error] == [title], (name, key, value)
        assert f"{key}={value[:200]}" in app.code[0].value
        assert not app.dataframe
        assert not app.metric
        assert not app.get("bidi_component")


@pytest.mark.parametrize("name", ["run", "audit", "batch", "bias", "contamination", "continuations", "differences"])
def test_no_such_run(audited, name):
    run = find_runs(audited.runs)[0].path.name
    values = [each for each in HOSTILE if not each or not run.startswith(each)]
    refused(name, "No such run", "run", [*values, run + "0", run.upper() + "X"])


def test_a_unique_prefix_names_a_run_and_the_address_gets_the_whole_name(audited):
    (run,) = find_runs(audited.runs)
    other = RunDirectory(run.path.parent / f"{run.path.name[:8]}{'0' * 8}")
    app = page("audit", run=run.path.name[:8])
    assert app.query_params["run"] == run.path.name
    assert not app.error
    shutil.copytree(run.path, other.path)
    app = page("compare", runs=[run.path.name[:12], other.path.name])
    assert app.query_params["runs"] == [run.path.name, other.path.name]
    app = page("audit", run=run.path.name[:8])
    assert [error.value for error in app.error] == ["No such run"]
    assert other.path.name in app.code[0].value, "the page names both"
    assert run.path.name in app.code[0].value


@pytest.mark.parametrize("name", ["audit", "bias", "contamination", "differences"])
def test_no_such_checkpoint(audited, name):
    (run,) = find_runs(audited.runs)
    newest = run.checkpoints()[-1].path.name
    values = [*HOSTILE, newest[:-1], newest + "0", "step-00000099", f"../checkpoints/{newest}"]
    refused(name, "No such checkpoint", "checkpoint", values, run=run.path.name)


def test_no_such_other_run_and_checkpoint(audited):
    (run,) = find_runs(audited.runs)
    values = [each for each in HOSTILE if not each or not run.path.name.startswith(each)]
    refused("differences", "No such run", "other_run", values, run=run.path.name)
    both = {"run": run.path.name, "other_run": run.path.name}
    refused("differences", "No such checkpoint", "other_checkpoint", HOSTILE, **both)


@pytest.mark.slow
def test_no_such_step(audited):
    (run,) = find_runs(audited.runs)
    refused("batch", "No such step", "step", NO_NUMBERS, run=run.path.name)
    for view in ("samples", "steps before"):
        app = page("batch", run=run.path.name, step="4000", view=view)
        assert [box.value for box in (*app.error, *app.warning)] == ["No such step."]
        assert "4000" in app.code[0].value


@pytest.mark.slow
def test_numbers_and_choices_that_do_not_fit_are_named(audited):
    (run,) = find_runs(audited.runs)
    name = run.path.name
    numbers, hostile = NO_NUMBERS[2:6], HOSTILE[1:6]
    for key in ("rank", "replica", "micro_batch"):
        refused("batch", f"No such {key.replace('_', ' ')}", key, numbers, run=name)
    refused("batch", "No such before", "before", [*numbers, "51"], run=name)
    refused("trace", "No such limit", "limit", [*numbers, "1001"])
    refused("takedown", "No such limit", "limit", [*numbers, "1001"])
    for where, key in (
        ("run", "x"),
        ("run", "steps"),
        ("run", "replaced"),
        ("run", "smooth"),
        ("batch", "view"),
        ("batch", "alone"),
    ):
        refused(where, f"No such {key}", key, hostile, run=name)
    refused("trace", "No such by", "by", hostile)
    refused("trace", "No such licence", "licence", hostile, by="licence")
    refused("megatron", "No such rebuild", "rebuild", hostile)


@pytest.mark.slow
def test_compare_takes_each_run_once(audited):
    (run,) = find_runs(audited.runs)
    name = run.path.name
    for values, title, shown in (
        ([name, "zzz"], "No such run", "runs=zzz"),
        (["0", "1"], "No such run", "runs=0"),
        ([name, name[:5]], "The address names 2 runs", f"runs={name}, {name}"),
        ([name, name], "The address names 2 runs", f"runs={name}, {name}"),
    ):
        app = page("compare", runs=values)
        assert [error.value for error in app.error] == [title]
        assert shown in app.code[0].value


@pytest.mark.slow
def test_a_name_twice_is_no_choice(audited):
    name = find_runs(audited.runs)[0].path.name
    for where, key, values in (("run", "run", [name, name]), ("batch", "step", ["3", "4"])):
        app = page(where, **({"run": name} | {key: values}))
        assert [error.value for error in app.error] == [f"The address names {key} 2 times"]


@pytest.mark.usefixtures("audited")
@pytest.mark.parametrize(
    ("by", "asked"),
    [("document", "red:nobody"), ("document", "no-corpus:red-3"), ("document", "red:#99999"), ("document", "red"),
     ("document", "<b>:x"), ("document", "red:" + "a" * 5000), ("source", "*nowhere*")],
)  # fmt: skip
def test_no_such_document_is_no_clean_verdict(by, asked):
    app = page("trace", by=by, **{by: asked})
    assert "clean" not in texts(app)
    assert app.warning or app.error


@pytest.mark.slow
def test_what_is_there_is_still_shown(audited):
    (run,) = find_runs(audited.runs)
    checkpoint = run.checkpoints()[0].path.name
    app = page("audit", run=run.path.name, checkpoint=checkpoint)
    assert (app.selectbox[1].value, list(app.error)) == (checkpoint, [])
    app = page("batch", run=run.path.name, step="3", view="samples", replica="1")
    assert (app.number_input[0].value, list(app.error)) == (3, [])


@pytest.mark.slow
def test_a_run_or_checkpoint_that_goes_while_it_is_shown_is_named(audited):
    (run,) = find_runs(audited.runs)
    cut_checkpoint(run, 2, list(run.attempt(2).rings())[-1]) if len(run.checkpoints()) < 2 else None
    app = page("audit", run=run.path.name, checkpoint=run.checkpoints()[-1].path.name)
    shutil.rmtree(run.checkpoints()[-1].path)
    app.run()
    assert [error.value for error in app.error] == ["No such checkpoint"]
    other = RunDirectory(run.path.parent / "0123456789abcdef")
    shutil.copytree(run.path, other.path)
    app = page("run", run=run.path.name)
    shutil.rmtree(run.path)
    app.run()
    assert [error.value for error in app.error] == ["No such run"]

"""The page Bias: what was measured, as a table and as charts, and what helps where nothing was."""

import json

import numpy as np
import pandas as pd
from bias_record import measured
from dashboard_charts import charts
from dashboard_page import page, table, texts

from treering.metrics.bias import assess
from treering.metrics.hans import HEURISTICS
from treering.runlog.chronicle import write_analysis
from treering.runlog.directory import RunDirectory
from treering.runlog.records import Evaluation


def lay_bias(run, axis, **planted):
    checkpoint = run.checkpoints()[-1]
    manifest = checkpoint.manifest
    record = measured(
        np.random.default_rng(1),
        axis,
        **planted,
        run=manifest.run,
        step=manifest.step,
        consumed_tokens=manifest.consumed_tokens,
        checkpoint=checkpoint.digest,
    )
    write_analysis(run.evaluations_folder, record)
    return record


def test_a_planted_bias_is_in_the_table_and_in_the_chart(lay_run):
    run = RunDirectory(lay_run(steps=100))
    record = lay_bias(run, "many", probability={("b", "cruel"): 4.0}, share={("b", "cruel"): 3.0})
    app = page("bias")
    rows = table(app, "Against").set_index("Group")
    assert list(rows.index) == ["a", "b", "c"]
    assert rows.loc["b", "Adjectives beyond noise"] == "cruel"
    assert rows.loc["b", "Sentiment, difference"].endswith("beyond noise)")
    said = texts(app)
    assert "What is not flagged may still be there" in said
    assert "missing: groups, words and languages that the lists do not name were not measured" in said
    assert f"treering bias {run.path.name[:8]}@" in said
    assert "unbiased" not in said
    drawn = [pd.concat(data.values()).dropna(subset="word").set_index("word") for _spec, data in charts(app)]
    assert len(drawn) == 6
    cruel = drawn[2].loc["cruel"]  # of group b, after its prompts
    ratio = next(each.ratio for each in assess(record).axes[0].groups[1].association if each.word == "cruel")
    assert [cruel[name] for name in ("ratio", "low", "high")] == [ratio.value, ratio.low, ratio.high]
    assert list(drawn[2].index[drawn[2]["verdict"] == "beyond noise"]) == ["cruel"]
    assert "No such axis" in texts(page("bias", axis="height"))


def test_without_a_measurement_it_shows_the_command(lay_run):
    run = RunDirectory(lay_run(steps=100))
    said = texts(page("bias"))
    assert "was not measured" in said
    assert f"treering bias {run.path.name[:8]}@{run.checkpoints()[-1].step}" in said


def test_a_changed_measurement_is_named(lay_run):
    run = RunDirectory(lay_run(steps=100))
    lay_bias(run, "pair")
    (file,) = run.analysis_files("bias")
    file.write_text(file.read_text().replace('"table"', '"other"'))
    said = texts(page("bias"))
    assert "The measurement of this checkpoint does not hold." in said
    assert "the file was changed" in said


def lay_hans(run):
    """Answers of a model that says yes to everything, with two examples in the prompt."""
    (file,) = run.evaluation_files()[-1:]
    evaluation, _ = Evaluation.read(file)
    names = [f"line {number}" for number in range(1, 25)]
    labels = {name: "01"[place % 2] for place, name in enumerate(names)}
    fields = {
        "heuristic": {name: HEURISTICS[place // 2 % 3] for place, name in enumerate(names)},
        "label": labels,
        "examples": {name: ("0 1", "1 0")[place // 2 % 2] for place, name in enumerate(names)},
    }
    right = {name: float(labels[name] == "0") for name in names}
    changes = {"items": {"hans": {"2": {"acc": right}}}, "fields": {"hans": {"2": fields}}}
    evaluation.model_copy(update=changes).write(file)
    return run.checkpoints()[-1]


def test_hans_is_divided_on_the_page_and_in_the_terminal(lay_run, treering, monkeypatch):
    run = RunDirectory(lay_run(steps=100))
    code, _, errors = treering("hans", run.path)
    assert (code, "is scored without the task hans; name hans with its file" in errors) == (2, True)
    checkpoint = lay_hans(run)
    app = page("bias")
    rows = table(app, "Part").set_index(["By", "Part"])
    assert rows.loc[("all", "all"), ["Items", "Says yes"]].tolist() == ["24", "1.000"]
    assert rows.loc[("heuristic and answer", "constituent, no is right"), "Accuracy"].startswith("0.000  (0.000 to ")
    assert rows.loc[("last example", "yes"), "Items"] == "12"
    assert list(table(app, "Verdict")["Verdict"]) == ["within noise"]
    assert "one order of examples" in texts(app)
    monkeypatch.chdir(run.path.parent.parent)
    code, output, _ = treering("hans", f"{run.path.name[:8]}@{checkpoint.step}", "--json")
    answer = json.loads(output)
    assert [(each["part"], each["accuracy"]) for each in answer["shares"] if each["by"] == "all"] == [("all", 0.5)]
    code, output, _ = treering("hans", run.path.name[:8])
    assert code == 0
    assert "subsequence, no is right" in output
    assert "imprecise: " in output

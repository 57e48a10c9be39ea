"""The page Bias: what was measured, as a table and as charts, and what helps where nothing was."""

import numpy as np
import pandas as pd
from bias_record import measured
from dashboard_charts import charts
from dashboard_page import page, table, texts

from treering.metrics.bias import assess
from treering.runlog.chronicle import write_analysis
from treering.runlog.directory import RunDirectory


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

"""The page Continuations: kept prompts side by side, the steps in the address."""

from dashboard_page import page, texts

from treering.config.operation import PromptsConfig
from treering.runlog.analyses import Continuation, Continuations
from treering.runlog.chronicle import write_analysis
from treering.runlog.directory import RunDirectory

HOSTILE = "**bold** <script>alert(1)</script>\u202e"


def lay_continuations(run):
    for checkpoint in run.checkpoints():
        manifest = checkpoint.manifest
        made = [
            Continuation(
                id=name,
                prompt=prompt,
                text=f"{HOSTILE} of {name} at {checkpoint.step}",
                tokens=(1, 2),
                finish="length",
                seed=0,
                left_out_tokens=0,
            )
            for name, prompt in (("line 1", "The man"), ("line 2", "The *woman*"))
        ]
        record = Continuations(
            run=manifest.run,
            step=manifest.step,
            consumed_tokens=manifest.consumed_tokens,
            checkpoint=checkpoint.digest,
            tokenizer=manifest.tokenizer,
            program="torch",
            device="cpu",
            prompts=manifest.tokenizer,
            settings=PromptsConfig(file="prompts.txt", max_tokens=2),
            continuations=tuple(made),
        )
        write_analysis(run.evaluations_folder, record)


def test_prompts_are_side_by_side_at_the_steps_of_the_address(lay_run):
    run = RunDirectory(lay_run(steps=300, checkpoint_every=50))
    lay_continuations(run)
    app = page("continuations")
    steps = [checkpoint.path.name for checkpoint in run.checkpoints()]
    assert app.multiselect[0].value == [steps[0], steps[len(steps) // 2], steps[-1]]
    said = texts(app)
    assert said.count("of line 1 at") == said.count("of line 2 at") == 3
    assert "line 2:  The *woman*" in [each.value for each in app.text]
    assert "\u202e" not in said
    assert "limited: 14 of 14 continuations end at the limit of tokens" in said
    app = page("continuations", run=run.path.name, checkpoints=["step-00000050", "step-00000200"])
    assert app.multiselect[0].value == ["step-00000050", "step-00000200"]
    shown = texts(app)
    assert "of line 1 at 200" in shown
    assert "at 100" not in shown
    assert "No such checkpoint" in texts(page("continuations", run=run.path.name, checkpoints="step-00000077"))


def test_without_continuations_it_says_what_makes_them(lay_run):
    lay_run()
    said = texts(page("continuations"))
    assert "Name a file of prompts in the experiment" in said
    assert "no continuations of the checkpoints" in said

"""Which checkpoints stay."""

import math

from hypothesis import given
from hypothesis import strategies as st

from treering.config.operation import CheckpointConfig
from treering.runlog.retention import kept_by


@given(
    losses=st.dictionaries(
        st.integers(1, 400), st.none() | st.sampled_from([1.0, 2.0, math.nan, math.inf]) | st.floats(0, 9), min_size=1
    ),
    keep_last=st.none() | st.integers(1, 9),
    keep_every=st.none() | st.integers(1, 50),
    keep_best=st.none() | st.booleans() | st.integers(1, 5),
)
def test_what_the_rules_keep(losses, keep_last, keep_every, keep_best):
    more = {"keep_every": keep_every, "keep_best": keep_best} if keep_last else {}
    rules = kept_by(losses, CheckpointConfig(every_steps=1, keep_last=keep_last, **more))
    assert rules.keys() == losses.keys()
    assert rules[max(losses)]
    measured = {step: loss for step, loss in losses.items() if loss is not None and math.isfinite(loss)}
    for step, loss in losses.items():
        newer = sum(other > step for other in losses)
        better = sum((other, at) < (loss, step) for at, other in measured.items()) if step in measured else math.inf
        expected = {
            f"last {keep_last}": newer < keep_last,
            f"every {keep_every}": keep_every is not None and step % keep_every == 0,
            f"best {int(keep_best or 0)}": better < int(keep_best or 0),
        } if keep_last else {"all": True}  # fmt: skip
        assert rules[step] == tuple(rule for rule, holds in expected.items() if holds)


def test_one_best_is_true():
    losses = {10: 3.0, 20: 1.5, 30: 1.5, 40: 2.0}
    one, two = (kept_by(losses, CheckpointConfig(every_steps=10, keep_last=1, keep_best=best)) for best in (True, 2))
    assert one == {10: (), 20: ("best 1",), 30: (), 40: ("last 1",)}
    assert two == {10: (), 20: ("best 2",), 30: ("best 2",), 40: ("last 1",)}

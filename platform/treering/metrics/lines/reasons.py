"""Why a run needs attention, in one sentence, with the step to look at."""

from collections.abc import Sequence
from dataclasses import replace

from treering.metrics.alarms import Alarm
from treering.metrics.lines.attention import is_late, level_of
from treering.metrics.lines.diverging import NAMES, Finding, usual_text
from treering.metrics.lines.line import RunLine
from treering.runlog.records import AttemptEnd


def with_reason(
    line: RunLine, finding: Finding | None, newest_alarm: Sequence[Alarm], end: AttemptEnd | None
) -> RunLine:
    """The line with the reason for its state.

    Args:
        line: the line, with its state.
        finding: why its rings say that it diverges.
        newest_alarm: the newest alarm on the path, nothing where there is none.
        end: how the newest attempt ended, where it left a record.
    """
    found = _of_state(line, finding, end) or _of_running(line, newest_alarm)
    return line if found is None else replace(line, reason=found.text, reason_step=found.step)


def _of_state(line: RunLine, finding: Finding | None, end: AttemptEnd | None) -> Finding | None:
    """Why a run is in a state in which it does not train as it should."""
    step = line.step or None
    after = f"after step {line.step:,}" if line.step else "before the first step"
    before = f"; it was diverging: {finding.text}" if finding else ""
    match line.state:
        case "stalled":
            return Finding(step, line.stall)
        case "diverging":
            return finding
        case "broken":
            lost = f"; {line.at_risk_steps:,} steps are trained again" if line.at_risk_steps else ""
            at = finding.step if finding else step
            return Finding(at, f"its processes died {after} without a record of it{lost}{before}")
        case "failed" | "interrupted":
            said = f": {end.reason}" if end and end.reason else ""
            return Finding(finding.step if finding else step, f"{line.state} {after}{said}{before}")
        case "damaged":
            return Finding(next((each.step for each in line.problems if each.step), step), str(line.problems[0]))
    return None


def _of_running(line: RunLine, newest_alarm: Sequence[Alarm]) -> Finding | None:
    """What is wrong with a run that trains."""
    if line.state != "running":
        return None
    if line.problems:
        return Finding(line.problems[0].step, str(line.problems[0]))
    if is_late(line):
        saved = f"step {line.checkpoint_step:,}" if line.checkpoint_step else "its start"
        text = f"no checkpoint since {saved}, one is due every {line.checkpoint_every:,} steps"
        return Finding(line.step, f"{text}: a crash now costs {line.at_risk_steps:,} steps")
    if newest_alarm and level_of(line).name == "alarmed":
        return Finding(newest_alarm[0].step, _alarm_text(newest_alarm[0]))
    return None


def _alarm_text(alarm: Alarm) -> str:
    """An alarm in words: `spike of the gradient norm at step 191: 6.2, usually 0.55`."""
    name = NAMES[alarm.metric]
    return f"{alarm.rule} of the {name} at step {alarm.step:,}: {alarm.value:.3g}{usual_text(alarm)}"

"""What a checkpoint read that Megatron trained without Treering: by data path, by step, by document."""

import shlex
from collections.abc import Callable, Sequence
from typing import Any, Final

import pandas as pd
import streamlit as st

from treering.audit.megatron.report import Alternative, MegatronReport, ReadSample, Setting
from treering.audit.megatron.run import AuditedRun
from treering.config.canonical import short
from treering.data.megatron.lineage import LINEAGE_NAMES
from treering.errors import TreeringError
from treering_dashboard.frames import cached
from treering_dashboard.frames.audits import megatron_run, megatron_runs
from treering_dashboard.panels.address import SWITCH, among, check_address, text, whole
from treering_dashboard.panels.answer import asked, command, error_box, open_ends
from treering_dashboard.panels.assurance import findings, verdict_line
from treering_dashboard.panels.choice import keep_choice
from treering_dashboard.panels.foreign import block, figure, say
from treering_dashboard.panels.tables import table
from treering_dashboard.panels.text import count, number, plural

_DESCRIBED: Final = """\
# megatron-run.yaml, in any folder; a checkpoint of Megatron holds all of this
data:
  - {prefix: /data/wiki_text_document, weight: 0.3}
  - {prefix: /data/books_text_document, weight: 0.7}
split: "969,30,1"
seed: 1234
sequence_length: 2048
train_samples: 131800000
global_batch_size: 1920
iteration: 1000
"""

_COUNTS = ("Samples", "Tokens", "Epochs", "Documents touched", "Documents held")
_SPANS = ("Sample", "Step", "Epoch", "Document", "Tokens", "Of")
_ORIGINS: Final = {
    "checkpoint": "the checkpoint",
    "launch": "the launch",
    "description": "the description",
    "default": "Megatron's default",
}


def page() -> None:
    """Draws the audit of the run whose path is chosen or typed."""
    check_address(path=text, moved=text, rebuild=SWITCH, lineage=among(LINEAGE_NAMES))
    found = megatron_runs()
    if found:
        keep_choice("path", found[0])
    typed = st.session_state.get("path") or st.query_params.get("path")
    if typed and typed not in found:
        found.append(typed)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        path = st.selectbox(
            "Save folder, checkpoint or description",
            found,
            index=None,
            key="path",
            bind="query-params",
            accept_new_options=True,
            placeholder="choose one, or type a path",
            width=460,
        )
        moved = st.text_input(
            "Moved folders",
            placeholder="OLD=NEW …",
            key="moved",
            bind="query-params",
            help="As `--data-root`: a folder of the run and its place today; several with spaces between",
            width=300,
        )
        lineage = st.selectbox(
            "Lineage",
            list(LINEAGE_NAMES),
            index=None,
            key="lineage",
            bind="query-params",
            placeholder="from the arguments",
            help="As `--lineage`: the programs whose data order the run has, if its arguments fit several",
            width=220,
        )
        verify = st.toggle(
            "Rebuild cached indices", key="rebuild", bind="query-params", help="As `--verify`: compare number by number"
        )
    if not path:
        st.info(
            "The project's folders do not hold a run of Megatron. Type the path of its save folder or of a checkpoint, "
            "or describe the run:",
            icon=":material/hub:",
        )
        block(_DESCRIBED, "yaml")
        return
    _audit(path, tuple(moved.split()), lineage, verify=verify)


def _audit(path: str, moved: tuple[str, ...], lineage: str | None, *, verify: bool) -> None:
    line = " ".join(
        ["treering audit --megatron-run", shlex.quote(path), *(f"--data-root {shlex.quote(pair)}" for pair in moved)]
    )
    line += "" if lineage is None else f" --lineage {shlex.quote(lineage)}"
    line += " --verify" if verify else ""
    if asked(f"megatron {line}", "Audit", costly=True):
        try:
            run = megatron_run(cached.project().root / path, moved, lineage, verify=verify)
            _report(run.report())
        except TreeringError as error:
            error_box("This run cannot be audited.", error)
        else:
            line += _questions(run)
    command(line)


def _report(report: MegatronReport) -> None:
    verdict_line(report.level, report.verdict, holds=report.holds)
    if report.unbound:
        st.warning("Some inputs are not bound: the answer rests on what the run declares.", icon=":material/link_off:")
        open_ends("Not bound", [each.text for each in report.unbound])
    skipped = f"{count(len(report.skipped_steps))} skipped" if report.skipped_steps else "none skipped"
    mixed = sum(usage.mixed_epochs for usage in report.corpora) or "none"
    cells = st.columns(4, gap="small")
    for cell, (title, value, detail) in zip(
        cells,
        (
            ("Steps", count(report.iteration), skipped),
            ("Consumed tokens", number(report.consumed_tokens), f"{count(report.consumed_samples)} samples"),
            ("Data paths", count(len(report.corpora)), f"{mixed} with mixed epochs"),
            ("Cached indices used", count(len(report.indices_read)), "the others were rebuilt from the seed"),
        ),
        strict=True,
    ):
        with cell:
            figure(title, value, detail)
    findings(report.findings)
    st.markdown("###### Reads by data path")
    weight = st.column_config.ProgressColumn(format="%.2f %%", min_value=0.0, max_value=100.0, width=130)
    table(usage_frame(report), "Reads by data path", numbers=_COUNTS, rows=20, columns={"Weight": weight})
    left, right = st.columns(2, gap="medium")
    with left:
        st.markdown("###### Settings and their origin")
        table(settings_frame(report.settings), "Settings that decide what was read", rows=12)
    with right:
        open_ends("Not proven", report.not_proven)
        open_ends("Cached indices that were used", report.indices_read)
        open_ends("Bound by a cached index", report.bound)


def _questions(run: AuditedRun) -> str:
    """Asks for a step and a document, and answers.

    Returns:
        The options of the command.
    """
    check_address(megatron_step=whole(1), megatron_document=text)
    st.markdown("###### Reads of a step, and of a document")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        step = st.number_input(
            "Step",
            min_value=1,
            value=None,
            step=1,
            placeholder=f"1 to {run.iteration}",
            key="megatron_step",
            bind="query-params",
            width=160,
        )
        document = st.text_input(
            "Document",
            placeholder=f"{run.order.components[0].corpus}:0",
            key="megatron_document",
            bind="query-params",
            help="PREFIX:NUMBER, the number of a sequence of the .idx",
            width=460,
        ).strip()
    options = ""
    if step is not None:
        options += f" --step {step}"
        _samples(f"Step {count(step)}", lambda: run.step(step), lambda: run.alternatives(step))
    if document:
        options += f" --document {shlex.quote(document)}"
        _samples(document, lambda: run.exposures(document), lambda: run.exposure_alternatives(document))
    return options


def _samples(
    what: str, answer: Callable[[], Sequence[ReadSample]], others: Callable[[], Sequence[Alternative]]
) -> None:
    try:
        samples, alternatives = answer(), others()
    except TreeringError as error:
        error_box("This question has no answer.", error)
        return
    if alternatives:
        open_ends("By other lineages that fit the run", [each.text for each in alternatives])
    say(f"{what}: {plural(len(samples), 'sample')}")
    if samples:
        table(samples_frame(samples), f"Samples of {what} with their documents", numbers=_SPANS, rows=16)


def usage_frame(report: MegatronReport) -> pd.DataFrame:
    """One row a data path; weights in percent."""
    return pd.DataFrame(
        [
            {
                "Data path": usage.corpus,
                "Weight": 100 * usage.weight,
                "Samples": count(usage.samples),
                "Tokens": count(usage.tokens),
                "Epochs": f"{usage.epochs:.4f}{' mixed' if usage.mixed_epochs else ''}",
                "Documents touched": count(usage.documents_touched),
                "Documents held": count(usage.num_documents),
                "Index": short(usage.index, 12),
            }
            for usage in report.corpora
        ]
    )


def settings_frame(settings: Sequence[Setting]) -> pd.DataFrame:
    """One row a setting; of data paths their number, since another table names each."""
    return pd.DataFrame(
        [
            {
                "Setting": each.name,
                "Value": _shown(each.value),
                "Said by": each.argument or _ORIGINS.get(each.origin, each.origin),
            }
            for each in settings
        ]
    )


def _shown(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return plural(len(value), "data path")
    if isinstance(value, dict):
        return " ".join(f"{name} {each}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def samples_frame(samples: Sequence[ReadSample]) -> pd.DataFrame:
    """One row a part of a document."""
    frame = pd.DataFrame(
        [
            {
                "Sample": count(sample.g),
                "Step": count(sample.step) + (" skipped" if sample.skipped else ""),
                "Data path": sample.corpus,
                "Epoch": "mixed" if sample.epoch is None else str(sample.epoch),
                "Document": count(part.number),
                "Tokens": f"{count(part.start)} to {count(part.end)}",
                "Of": count(part.num_tokens),
                "Id": part.id or "",
                "Source": part.source or "",
                "Licence": part.licence or "",
            }
            for sample in samples
            for part in sample.documents
        ]
    )
    return frame.drop(columns=[name for name in ("Id", "Source", "Licence") if not frame[name].any()])

"""`report.md`: what was made of what, in the order of the pipeline.

All sections but the last are the same for the same run; the last one has clocks, machines and the digests over them.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from treering.audit.report import AuditReport
from treering.config.canonical import short
from treering.foreign import code, markdown
from treering.metrics.efficiency import STEP_PARTS
from treering.metrics.parameters import Parameters
from treering.project import Project
from treering.report.facts import CorpusDocuments, CorpusTokens, Facts, Missing, Training
from treering.report.places import next_steps, places
from treering.report.scores import metric_names, score_rows
from treering.report.speed import speed
from treering.runlog.ancestry import segments_left
from treering.runlog.metric_catalog import describe
from treering.runlog.records import Evaluation

_NUMBER = "0123456789-"


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table; columns of numbers to the right. A cell that is not `Markdown` is escaped."""
    cells = [tuple(row) for row in rows]
    right = [
        bool(cells) and all(not cell or cell[0] in _NUMBER for cell in column) for column in zip(*cells, strict=True)
    ]
    right = right or [False] * len(columns)
    lines = [
        f"| {' | '.join(map(markdown, columns))} |",
        f"| {' | '.join('---:' if number else '---' for number in right)} |",
    ]
    lines += [f"| {' | '.join(map(markdown, row))} |" for row in cells]
    return "\n".join(lines)


def render_page(facts: Facts, audit: AuditReport, project: Project, *, chart: bool) -> str:
    """The page.

    Args:
        facts: complete facts.
        audit: of the published checkpoint.
        project: the project's folders.
        chart: whether `plots/loss.svg` was drawn.

    Raises:
        ValueError: a section is missing.
    """
    documents, tokens, training, evaluations = facts.documents, facts.tokens, facts.training, facts.evaluations
    if (
        isinstance(documents, Missing)
        or isinstance(tokens, Missing)
        or isinstance(training, Missing)
        or isinstance(evaluations, Missing)
    ):
        raise ValueError("a report needs every section")  # noqa: TRY004 - a missing section is a value, not a type
    sections = (
        _title(facts, training, evaluations[-1], audit),
        documents_section(documents),
        *([] if facts.quality is None else [quality_section(facts.quality)]),
        tokens_section(tokens, audit),
        _training_section(training, evaluations[-1], chart=chart),
        _scores_section(evaluations),
        _kernels_section(training),
        _audit_section(audit, project),
        _places_section(training, project),
        _clock_section(training),
    )
    return "\n\n".join(sections) + "\n"


def _title(facts: Facts, training: Training, final: Evaluation, audit: AuditReport) -> str:
    below = final.unigram_entropy - final.validation_loss
    return (
        f"# {markdown(facts.experiment.experiment)}\n\n"
        + (f"{markdown(' '.join(facts.experiment.description.split()))}\n\n" if facts.experiment.description else "")
        + f"Run {code(training.resolved.run_id)}, step {training.checkpoint.step:,}. "
        f"Held-out loss {final.validation_loss:.3f} nats a token, {abs(below):.3f} "
        f"{'under' if below >= 0 else 'ABOVE'} the unigram entropy of the same tokens. "
        f"Audit: **{markdown(audit.verdict)}**.\n\n"
        + table(
            ("identity", "digest"),
            [(name, code(digest)) for name, digest in training.resolved.digests.items()]
            + [("tokenizer", code(training.resolved.recipe.tokenizer))],
        )
    )


def documents_section(documents: Sequence[CorpusDocuments]) -> str:
    """Documents kept and dropped by each step, and by each rule."""
    rows = [
        (
            row.corpus,
            f"{row.taken:,}",
            *(f"{count:,}" for count in row.dropped.values()),
            f"{row.train:,}",
            f"{row.heldout:,}",
        )
        for row in documents
    ]
    rules = [
        (f"{step}: {rule}", f"{count:,}")
        for step, counts in documents[-1].rules.items()
        for rule, count in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))
    ]
    return (
        "## Documents\n\nDropped by each step, in this order; every document's decision lies in "
        "`data/curated/decisions/`.\n\n"
        + table(("corpus", "taken", *documents[-1].dropped, "train", "held out"), rows)
        + "\n\n"
        + table(("step and rule", "documents dropped"), rules)
    )


def quality_section(quality: Mapping[str, Any]) -> str:
    """What the quality classifier learned from, how well it separates, and what it kept by score."""
    sides = (
        f"{sum(counts.values()):,} {side} documents ({', '.join(map(code, counts))})"
        for side, counts in quality["documents"].items()
    )
    width = 1 / max(map(len, quality["bands"].values()))
    rows = [
        (corpus, f"{place * width:.1f} to {(place + 1) * width:.1f}", f"{scored:,}", f"{kept:,}")
        for corpus, bands in quality["bands"].items()
        for place, (scored, kept) in enumerate(bands)
        if scored
    ]
    return "\n\n".join(
        (
            "## Quality",
            f"The classifier {code(quality['model'])} was made of {' and '.join(sides)}. Of these documents, "
            f"{quality['measured']:,} were left out of its training: a good one scores higher than a judged one in "
            f"{quality['auc']:.1%} of their pairs. A document with score s is kept with the probability "
            f"(2 - s)^-{quality['alpha']:g}.",
            table(("corpus", "score", "documents", "kept by the classifier"), rows),
        )
    )


def tokens_section(tokens: Sequence[CorpusTokens], audit: AuditReport) -> str:
    """Tokens by corpus; the blend as planned and as realised."""
    used = {usage.corpus: usage for usage in audit.corpora}
    rows = []
    for row in tokens:
        usage = used.get(row.corpus)
        share = usage.samples / audit.consumed_samples if usage else 0.0
        touched = usage.documents_touched if usage else None
        rows.append(
            (
                row.corpus,
                f"{row.train:,}",
                f"{row.heldout:,}",
                row.weight,
                f"{share:.4f}",
                f"{usage.planned_epochs:.3f}" if usage else "",
                f"{usage.realised_epochs:.3f}" if usage else "",
                "" if touched is None else f"{touched:,} of {row.documents:,}",
                row.licence,
            )
        )
    columns = (
        *("corpus", "tokens", "held out", "weight", "realised", "epochs planned", "epochs realised"),
        *("documents read", "licence"),
    )
    read = f"Of {audit.consumed_samples:,} samples that the checkpoint has read."
    return f"## Tokens and blend\n\n{read}\n\n{table(columns, rows)}"


def _training_section(training: Training, final: Evaluation, *, chart: bool) -> str:
    resolved, rings = training.resolved, training.rings
    model = resolved.recipe.model
    parameters = Parameters.of(model, resolved.blend.sequence_length).total
    validation = training.validation
    rows = [
        ("loss of a uniform guess", f"{math.log(model.padded_vocab_size):.3f}"),
        ("training loss, first step", f"{rings[0].loss:.3f}"),
        ("training loss, last step", f"{rings[-1].loss:.3f}"),
    ]
    if validation:
        rows += [
            (f"held-out loss after step {validation[0][0].step:,}", f"{validation[0][1]:.3f}"),
            (f"held-out loss after step {validation[-1][0].step:,}", f"{validation[-1][1]:.3f}"),
        ]
    rows += [
        ("held-out loss of the published checkpoint, by evaluation", f"{final.validation_loss:.3f}"),
        ("unigram entropy of the same held-out tokens", f"{final.unigram_entropy:.3f}"),
    ]
    alarms = [
        (
            f"{alarm.step:,}",
            f"`{alarm.rule}`",
            alarm.metric,
            f"{alarm.value:.4g}",
            f"{alarm.background:.4g}",
            "" if alarm.z is None else f"{alarm.z:.1f}",
            f"{alarm.since:,}",
        )
        for alarm in training.alarms
    ]
    counts = ", ".join(f"{count:,} `{rule}`" for rule, count in Counter(each.rule for each in training.alarms).items())
    return "\n\n".join(
        (
            "## Training",
            f"{parameters / 1e6:.2f} million parameters ({model.num_layers} layers, hidden {model.hidden_size}, "
            f"{model.num_attention_heads} heads, vocabulary {model.padded_vocab_size:,}), sequence "
            f"{resolved.blend.sequence_length}, {resolved.recipe.precision}; {rings[-1].step:,} steps, "
            f"{rings[-1].consumed_tokens:,} tokens, batch {rings[0].global_batch_size:,} to "
            f"{rings[-1].global_batch_size:,} samples.",
            table(("nats a token", "value"), rows),
            "![loss](plots/loss.svg)" if chart else "No chart: the package vl-convert-python is not installed.",
            f"Alarms: {counts or 'none'}.",
            *([table(("step", "rule", "metric", "value", "background", "z", "since step"), alarms)] if alarms else []),
            *([f"Missing: {training.missing}."] if training.missing else []),
        )
    )


def _scores_section(evaluations: Sequence[Evaluation]) -> str:
    final = evaluations[-1]
    rows = list(score_rows(final))
    metrics = metric_names(rows)
    scores = [
        (row.task, str(row.shots), f"{row.examples:.2f}", f"{row.items:,}", *(row.text(metric) for metric in metrics))
        for row in rows
    ]
    perplexities = [
        (
            corpus,
            f"{numbers['loss']:.3f}",
            f"{numbers['perplexity']:,.1f}",
            f"{numbers.get('unigram_entropy', 0.0):.3f}",
        )
        for corpus, numbers in final.perplexity.items()
    ]
    over_training = [
        (f"{record.step:,}", f"{record.consumed_tokens:,}", f"{record.validation_loss:.3f}", *_accuracies(record))
        for record in evaluations
    ]
    names = [f"{row.task} {row.shots}-shot" for row in rows]
    return "\n\n".join(
        (
            "## Scores",
            f"Step {final.step:,}, {markdown(final.harness)}; ± is one standard error. Prompts hold as many of the "
            "examples asked for as fit, whole.",
            table(("task", "shots", "examples that fitted", "items", *metrics), scores),
            "Held-out text by corpus:",
            table(("corpus", "loss", "perplexity", "unigram entropy"), perplexities),
            "Over training (accuracy):",
            table(("step", "tokens", "held-out loss", *names), over_training),
        )
    )


def _accuracies(record: Evaluation) -> list[str]:
    return [row.text("acc") for row in score_rows(record)]


def _kernels_section(training: Training) -> str:
    path, _ = segments_left(training.checkpoint.run, training.checkpoint)
    rows = [
        (kernel.operation, kernel.requested, kernel.used, kernel.reason) for kernel in path[-1].attempt.header.kernels
    ]
    return "## Kernels\n\nWhat was asked for, and what ran.\n\n" + table(("operation", "asked for", "ran", "why"), rows)


def _audit_section(audit: AuditReport, project: Project) -> str:
    def local(text: str) -> str:
        return markdown(text.replace(f"{project.root}/", ""))

    parts = [f"## Audit\n\n**{markdown(audit.verdict)}**"]
    parts += [f"- {local(finding.text)}" for finding in audit.findings]
    parts.append("Not proven:")
    failed = [finding.text for finding in audit.findings]
    open_texts = [text for text in audit.not_proven if not any(each in text for each in failed)]
    parts.append("\n".join(f"- {local(text)}" for text in open_texts))
    return "\n\n".join(parts)


def _places_section(training: Training, project: Project) -> str:
    where = table(("what", "where"), places(project, training.resolved.run_id))
    steps = "\n".join(f"- {text}: {code(command)}" for text, command in next_steps(project, training))
    return f"## Where everything lies, and what to do next\n\n{where}\n\n{steps}"


def _clock_section(training: Training) -> str:
    run = training.checkpoint.run
    manifest = training.checkpoint.manifest
    found = speed(training.rings)
    flops = (
        "unknown"
        if found.tflops_per_device is None
        else f"{found.tflops_per_device:.4g} TFLOP/s ({found.flops_formula})"
    )
    parts = ", ".join(
        f"{describe(f'time/{part}').title.lower()} {found.split[part]:.1%}"
        for part in STEP_PARTS
        if part in found.split
    )
    attempts = [segment.attempt for segment in segments_left(run, training.checkpoint)[0]]
    devices = attempts[-1].header.devices
    names = [
        f"{len(list(group))} x {name}"
        for name, group in groupby(sorted(str(device.get("name", device.get("kind", "device"))) for device in devices))
    ]
    return (
        "## This time, on this machine\n\nEverything above is the same for the same run. These differ from one "
        "training to the next, and none of them is a metric.\n\n"
        + table(
            ("what", "value"),
            [
                ("layout (TP x PP x DP)", f"{manifest.layout} on {manifest.layout.device}, {', '.join(names)}"),
                ("attempts on the path", ", ".join(f"{attempt.number}" for attempt in attempts)),
                ("all steps", f"{found.steps_s:,.1f} s"),
                ("step, median", f"{found.step_s:.4f} s"),
                ("of it", parts or "unknown"),
                ("tokens per second", f"{found.tokens_per_second:,.0f}"),
                ("per device, median", flops),
                ("checkpoint", code(training.checkpoint.digest)),
                ("last ring", code(manifest.ring)),
                ("code", code(short(manifest.code))),
                ("environment", code(short(manifest.environment))),
            ],
        )
    )

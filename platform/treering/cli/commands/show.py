"""`treering show`: prints one run."""

import statistics
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from treering.cli.alarms import alarm_counts, print_alarms
from treering.cli.numbers import age, number_text, plain_numbers, short_count
from treering.cli.options import JsonOption, RunArgument, project
from treering.cli.output import console, print_json, print_table
from treering.cli.recorded import print_notes, print_recorded_page, print_reproductions
from treering.cli.sensors import print_energy
from treering.config.canonical import short

FullOption = Annotated[
    bool, typer.Option("--full", help="Also show recipe, attempts, kernels, checkpoints and scores.")
]


def show(run: RunArgument, full: FullOption = False, json: JsonOption = False) -> None:
    """Show one run: state, progress, loss, checkpoint, alarms, energy; with `--full`, everything on record.

    Exit codes:
        3: the config or the log of the run does not hold

    Examples:
        treering show 0123
        treering show 0123 --full
    """
    from treering.config.settings import read_settings
    from treering.metrics.recorded_summary import recorded_page
    from treering.metrics.references import read_references
    from treering.metrics.run_summary import run_page
    from treering.runlog.find import find_recorded, find_run

    recorded = find_recorded(project().runs, run)
    if recorded is not None:
        recorded_run = recorded_page(recorded[0], read_settings(project()).electricity)
        if json:
            print_json(plain_numbers(recorded_run))
        else:
            print_recorded_page(recorded_run, full=full)
        return
    page = run_page(find_run(project().runs, run), read_references(project().references) if full or json else ())
    if json:
        print_json(plain_numbers(page))
        return
    _print_state(page, full=full)
    print_energy(page)
    print_reproductions(page)
    print_notes(page)
    if full:
        _print_page(page)
    else:
        console.print("more        --full: recipe, attempts, kernels, alarms, checkpoints, scores")


def _print_state(page: dict[str, Any], *, full: bool) -> None:
    """Prints state, progress, loss, best checkpoint, speed, alarms and incidents."""
    run, speed = page["run"], page["throughput"]
    console.print(f"run         {run['id']} ({run['experiment']})", f"state       {run['state']}")
    if run["mirror"]:
        console.print(f"mirror      {run['mirror'].removeprefix('mirror ')}")
    if run["reason"]:
        console.print(f"why         {run['reason']}")
    if run["problem"] not in {"", run["reason"]}:
        console.print(f"missing     {run['problem']}")
    done = f" ({run['step'] / run['num_steps']:.0%})" if run["num_steps"] else ""
    since = f"; last step {age(run['age_s'])} ago" if run["age_s"] is not None else ""
    console.print(
        f"progress    step {run['step']:,} of {run['num_steps']:,}{done}, {run['consumed_tokens']:,} tokens{since}"
    )
    heldout = "" if run["validation_loss"] is None else f"; held out {number_text(run['validation_loss'])}"
    console.print(f"loss        {number_text(run['loss']) or 'no step yet'}{heldout}")
    _print_best(page["checkpoints"])
    if speed is not None and not full:
        mfu = "" if speed["mfu"] is None else f", MFU {speed['mfu']:.1%}"
        console.print(
            f"speed       {speed['tokens_per_second']:,.0f} tokens/s, {speed['step_time_s']:.3g} s a step{mfu} "
            f"(median of {speed['steps']})"
        )
    console.print(f"alarms      {alarm_counts(run['alarms']) or 'none'}")
    incidents = [incident for attempt in page["attempts"] for incident in attempt["incidents"]]
    if incidents:
        newest = incidents[-1]
        said = f"{newest['title']}: {newest['text']}"
        console.print(f"incidents   {len(incidents)}; the newest at step {newest['step']:,}: {said}")


def _print_best(checkpoints: list[dict[str, Any]]) -> None:
    """Prints the checkpoint with the lowest held-out loss, and the newest checkpoint."""
    if not checkpoints:
        console.print("best        no checkpoint yet")
        return
    measured = [each for each in checkpoints if each["validation_loss"] is not None]
    best, newest = min(measured, key=lambda each: each["validation_loss"], default=None), checkpoints[-1]
    if best is not None:
        console.print(f"best        {Path(best['path']).name}, held-out loss {number_text(best['validation_loss'])}")
    if best is not newest:
        console.print(f"newest      {Path(newest['path']).name}" + ("; no held-out loss on record" if not best else ""))


def _print_page(page: dict[str, Any]) -> None:
    recipe = page["recipe"]
    model = recipe["model"]
    console.print("", f"folder      {_from_here(page['path_to_run'])}")
    if page["overrides"]:
        console.print(f"set         {'  '.join(page['overrides'])}")
    for name, digest in page["digests"].items():
        console.print(f"{name:<11} {digest}")
    console.print(
        f"model       {short_count(page['parameters'])} parameters: {model['num_layers']} layers, hidden "
        f"{model['hidden_size']:,}, {model['num_attention_heads']} heads; {recipe['precision']}, seed {recipe['seed']}"
    )
    blend = ", ".join(f"{component['corpus']} {component['weight']}" for component in page["blend"]["components"])
    console.print(f"blend       {blend}; sequence {page['blend']['sequence_length']:,}")
    _print_speed(page["throughput"])
    _print_attempts(page)
    _print_kernels(page["kernels"])
    _print_nondeterminism(page["nondeterminism"])
    console.print()
    print_alarms(page["spikes"])
    _print_checkpoints(page)
    _print_scores(page["evaluations"])
    _print_published(page["published"])


def _print_speed(speed: dict[str, Any] | None) -> None:
    from treering.metrics.efficiency import STEP_PARTS
    from treering.runlog.metric_catalog import describe

    if speed is None:
        return
    tflops = speed["tflops_per_device"]
    flops = f", {tflops:.3g} TFLOP/s a device by {speed['flops_formula']}" if tflops is not None else ""
    if speed["mfu"] is not None:
        flops += f", MFU {speed['mfu']:.1%}, HFU {speed['hfu']:.1%} of {speed['peak_tflops']:g}"
    console.print(
        f"speed       {speed['tokens_per_second']:,.0f} tokens/s, {speed['step_time_s']:.3g} s a step{flops} on "
        f"{speed['device'] or 'unknown devices'} (median of {speed['steps']} steps)"
    )
    parts = [f"{describe(f'time/{part}').title.lower()} {share:.1%}" for part, share in speed["split"].items()]
    if parts:
        inside, between = ", ".join(parts[: len(STEP_PARTS)]), ", ".join(parts[len(STEP_PARTS) :])
        console.print(f"step        {inside}" + (f"; between steps: {between} of their time" if between else ""))
    if speed["pipeline_bubble"] is not None:
        ideal = speed["ideal_pipeline_bubble"]
        beside = f", ideal {ideal:.1%} by (p - 1)/(m + p - 1)" if ideal is not None else ""
        console.print(f"bubble      {speed['pipeline_bubble']:.1%} of the pipeline's time{beside}")
    if len(speed["ranks"]) > 1:
        slowest, *_, fastest = speed["ranks"]
        tflops = sorted(rank["tflops"] for rank in speed["ranks"])
        console.print(
            f"ranks       of {len(tflops):,} with telemetry rank {slowest['rank']} computes longest, "
            f"{slowest['compute_s']:.3g} s a step, rank "
            f"{fastest['rank']} shortest, {fastest['compute_s']:.3g} s; TFLOP/s by their own clocks {tflops[0]:.3g} to "
            f"{tflops[-1]:.3g}, median {statistics.median(tflops):.3g}"
        )


def _print_attempts(page: dict[str, Any]) -> None:
    path = " → ".join(
        f"{'' if step['run'] == page['run']['id'] else step['run'] + ' '}attempt {step['attempt']}"
        + (f" to step {step['last_step']:,}" if step["last_step"] else "")
        for step in page["path"]
    )
    console.print(f"path        {path or 'no attempt yet'}")
    for attempt in page["attempts"]:
        started = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(attempt["started_at"]))
        begin = f"{attempt['origin']} from step {attempt['from_step']:,}" if attempt["from_step"] else attempt["origin"]
        code, environment = short(attempt["code"] or ""), short(attempt["environment"] or "")
        console.print(
            f"attempt {attempt['attempt']:<3} {begin}, {started} UTC, TPxPPxDP {attempt['layout']} on "
            f"{attempt['device']}, code {code} (rule {attempt['code_rule']}), environment {environment}"
            + ("" if attempt["on_path"] else ", off the path")
            + (f"; {attempt['status']}: {attempt['reason']}" if attempt["status"] else "")
            + (f"; changed: {'; '.join(attempt['changed'])}" if attempt["changed"] else "")
        )
        if attempt["launch"]:
            console.print(f"  started by {_launch_text(attempt['launch'], attempt['nodes'])}")
        for incident in attempt["incidents"]:
            where = f" (on {incident['host']})" if incident["host"] else ""
            console.print(f"  incident  step {incident['step']:,}: {incident['title']}: {incident['text']}{where}")


def _launch_text(launch: dict[str, Any], nodes: list[str]) -> str:
    """What started an attempt: `srun, Slurm job 4711 after 2 restarts on dgx[001-280], script 0123456789ab`."""
    slurm, script = launch.get("slurm", {}), launch.get("script")
    words = [str(launch["launcher"])]
    if "job" in slurm:
        restarts = f" after {slurm['restarts']} restarts" if slurm.get("restarts", "0") != "0" else ""
        words.append(f"Slurm job {slurm['job']}{restarts}")
    words[-1] += f" on {slurm.get('nodelist') or f'{len(nodes)} nodes'}"
    if script:
        words.append(f"script {short(script['digest'])}")
    return ", ".join(words)


def _print_kernels(kernels: list[dict[str, Any]]) -> None:
    if kernels:
        console.print()
        rows = [[kernel["operation"], kernel["requested"], kernel["used"], kernel["reason"]] for kernel in kernels]
        print_table(("kernel", "asked for", "ran", "why"), rows)


def _print_nondeterminism(found: dict[str, Any] | None) -> None:
    if found is None:
        return
    console.print()
    if not found["operations"]:
        console.print(f"not deterministic: {found['reason']}")
        return
    rows = [[each["operation"], each["why"]] for each in found["operations"]]
    print_table(("not deterministic", f"why ({found['reason']})"), rows)


def _print_checkpoints(page: dict[str, Any]) -> None:
    checkpoints = page["checkpoints"]
    if checkpoints:
        console.print()
        rows = [
            [
                f"{c['step']:,}",
                short_count(c["consumed_tokens"]),
                f"{c['bytes'] / 1e6:,.1f}",
                short(c["digest"]),
                str(Path(c["path"]).relative_to(page["path_to_run"])),
            ]
            for c in checkpoints
        ]
        columns = ("checkpoint", "tokens", "MB", "digest", "in the run's folder")
        print_table(columns, rows, numbers=("checkpoint", "tokens", "MB"))


def _print_scores(evaluations: list[dict[str, Any]]) -> None:
    rows = []
    for evaluation in evaluations:
        step = f"{evaluation['step']:,}"
        rows.append([step, "held-out loss", "", number_text(evaluation["validation_loss"]), ""])
        for task, by_shots in evaluation["scores"].items():
            for shots, metrics in by_shots.items():
                rows.extend(
                    [step, f"{task} {metric}", shots, number_text(value), number_text(metrics[f"{metric}_stderr"])]
                    for metric, value in metrics.items()
                    if f"{metric}_stderr" in metrics
                )
    if rows:
        console.print()
        print_table(
            ("scores at step", "score", "shots", "value", "±"), rows, numbers=("scores at step", "shots", "value", "±")
        )


def _print_published(published: list[dict[str, Any]]) -> None:
    """Prints scores of other models beside those of the newest evaluation, with their citations."""
    if not published:
        return
    rows = [
        [
            each["model"],
            f"{each['task']} {each['metric']}",
            str(each["shots"]),
            number_text(each["published"]),
            number_text(each["own"]),
        ]
        for each in published
    ]
    console.print()
    print_table(
        ("published", "score", "shots", "theirs", f"step {published[0]['step']:,}"), rows, numbers=("shots", "theirs")
    )
    for model, citation, caveat in dict.fromkeys(
        (each["model"], each["citation"], each["caveat"]) for each in published
    ):
        console.print(f"{model}: {citation}; {caveat}")


def _from_here(path: str) -> str:
    """The path relative to the working directory, if it is below that."""
    here = Path.cwd()
    return str(Path(path).relative_to(here)) if Path(path).is_relative_to(here) else path

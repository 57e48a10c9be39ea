"""`treering report`: stage `report` of the pipeline."""

from treering.cli.options import DEFAULT_CONFIG, ConfigArgument, JsonOption, project
from treering.cli.output import console, print_json
from treering.progress import progress_bars


def report(config: ConfigArgument = DEFAULT_CONFIG, json: JsonOption = False) -> None:
    """Audit the published checkpoint; write report.md, plots/loss.svg and metrics/report.json.

    Exit codes:
        3: the audit found something that does not hold

    Examples:
        treering report experiments/demo.yaml
    """
    from treering.config.load import load_experiment
    from treering.report.facts import read_facts
    from treering.report.write import report_metrics, write_report

    here = project()
    facts = read_facts(here, load_experiment(config), str(config))
    with progress_bars() as progress:
        audit = write_report(facts, here, progress)
    if json:
        print_json(report_metrics(facts, audit))
        return
    console.print(f"audit   {audit.verdict}")
    console.print(f"report  {here.report.relative_to(here.root)}")

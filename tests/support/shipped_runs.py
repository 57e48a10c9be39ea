"""What MLflow's own client reads of the runs that were shipped."""


def mlflow_runs(client, branch="current"):
    (experiment,) = [e for e in client.search_experiments() if e.name == "tiny"]
    return client.search_runs([experiment.experiment_id], f"tags.`treering.branch` = '{branch}'")


def history(client, run, key):
    return [
        (metric.step, metric.value)
        for metric in sorted(client.get_metric_history(run.info.run_id, key), key=lambda m: m.step)
    ]

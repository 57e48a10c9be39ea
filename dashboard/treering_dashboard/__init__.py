"""The dashboard: reads what the run log, the registry and the evaluations hold; writes nothing."""

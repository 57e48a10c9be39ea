"""Stores that hold projections of the run log: each can be deleted and filled again from it."""

import os

# MLflow reads these when it is imported: no calls home, and one patient retry loop (ours) instead of two nested ones.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "60")
os.environ.setdefault("MLFLOW_LOGGING_LEVEL", "WARNING")

"""The revisions of MLflow's database schema, by which the database of another MLflow is recognized."""

from alembic.script import ScriptDirectory
from mlflow.store.db import utils as mlflow_database


def schema_revisions() -> tuple[set[str], str | None]:
    """The revisions of the schema that this MLflow knows, and the newest of them."""
    script = ScriptDirectory.from_config(mlflow_database._get_alembic_config("sqlite://"))  # type: ignore[no-untyped-call]  # noqa: SLF001
    return {each.revision for each in script.walk_revisions()}, script.get_current_head()

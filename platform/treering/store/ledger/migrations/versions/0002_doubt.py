"""What shippers could not read, the commits of attempts, and an index for comparisons of scores."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Adds a table, a column and an index."""
    op.create_table(
        "ledger_unread",
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("problem", sa.Text(), nullable=False),
        sa.Column("at", sa.Float(53), nullable=False),
        sa.PrimaryKeyConstraint("source", "name"),
        sa.ForeignKeyConstraint(["source"], ["ledger_source.key"], ondelete="CASCADE"),
    )
    op.add_column("ledger_attempt", sa.Column("commit", sa.Text(), nullable=True))
    op.create_index(op.f("ix_ledger_score_task_metric_value"), "ledger_score", ["task", "metric", "value"])

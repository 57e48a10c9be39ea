"""Without the indexes that led SQLite to read all rows of a corpus, tag or alias for each checkpoint."""

from alembic import op

revision = "0003"
down_revision = "0002"

_DROPPED = {"ledger_read": ("corpus", "name"), "ledger_tag": ("tag",), "ledger_licence": ("licence",)}


def upgrade() -> None:
    """Drops the indexes."""
    for table, columns in _DROPPED.items():
        for column in columns:
            op.drop_index(op.f(f"ix_{table}_{column}"), table)
    op.drop_index(op.f("ix_ledger_promotion_alias"), "ledger_promotion")

"""Runs, attempts, checkpoints, corpora, licences, scores, notes, tags, promotions, and who ships them."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def _column(name: str, kind: type[sa.types.TypeEngine[Any]] = sa.Text, *, null: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Float(53) if kind is sa.Float else kind(), nullable=null)


def _table(name: str, columns: list[sa.Column[Any]], keys: list[str], of: dict[str, str] | None = None) -> None:
    op.create_table(
        name,
        *columns,
        sa.PrimaryKeyConstraint(*keys),
        *(sa.ForeignKeyConstraint([key], [f"{other}.key"], ondelete="CASCADE") for key, other in (of or {}).items()),
    )


def _index(table: str, *columns: str) -> None:
    op.create_index(op.f(f"ix_{table}_{'_'.join(columns)}"), table, list(columns))


def upgrade() -> None:
    """Makes the tables."""
    text, whole, number, truth = sa.Text, sa.BigInteger, sa.Float, sa.Boolean
    run = [_column(name) for name in ("key", "id", "digest", "project", "experiment", "name", "trainer", "state")]
    run += [_column("started_at", number), _column("updated_at", number), _column("step", whole)]
    run += [_column("tokens", whole, null=True), _column("blend", null=True), _column("corpora", truth)]
    run += [_column(name) for name in ("host", "folder", "extent", "position", "projection")]
    _table("ledger_run", [*run, _column("shipped_at", number)], ["key"])
    for name in ("id", "project", "experiment", "updated_at"):
        _index("ledger_run", name)
    attempt = [_column("run"), _column("number", whole), _column("started_at", number)]
    attempt += [_column("ended_at", number, null=True), _column("status", null=True), _column("reason", null=True)]
    attempt += [_column("host"), _column("world_size", whole), _column("code", null=True)]
    attempt += [_column("environment", null=True), _column("parent_step", whole, null=True), _column("on_path", truth)]
    _table("ledger_attempt", attempt, ["run", "number"], {"run": "ledger_run"})
    checkpoint = [_column("key"), _column("run"), _column("attempt", whole, null=True), _column("step", whole)]
    checkpoint += [_column("digest", null=True), _column("status"), _column("tokens", whole, null=True)]
    checkpoint += [_column("bytes", whole, null=True), _column("created_at", number, null=True)]
    _table("ledger_checkpoint", [*checkpoint, _column("place", text, null=True)], ["key"], {"run": "ledger_run"})
    _index("ledger_checkpoint", "run")
    _index("ledger_checkpoint", "digest")
    corpus = [_column("key"), _column("name"), _column("licence"), _column("documents", whole)]
    _table("ledger_corpus", [*corpus, _column("tokens", whole)], ["key"])
    licence = [_column("corpus"), _column("licence"), _column("documents", whole), _column("tokens", whole)]
    _table("ledger_licence", licence, ["corpus", "licence"], {"corpus": "ledger_corpus"})
    _index("ledger_licence", "licence")
    read = [_column("checkpoint"), _column("corpus"), _column("name"), _column("samples", whole, null=True)]
    read += [_column("tokens", whole, null=True), _column("epochs", number, null=True)]
    _table("ledger_read", read, ["checkpoint", "corpus"], {"checkpoint": "ledger_checkpoint"})
    _index("ledger_read", "corpus")
    _index("ledger_read", "name")
    score = [_column("checkpoint"), _column("task"), _column("metric"), _column("shots", whole)]
    score += [_column("value", number, null=True), _column("stderr", number, null=True)]
    _table("ledger_score", score, ["checkpoint", "task", "metric", "shots"], {"checkpoint": "ledger_checkpoint"})
    note = [_column("key"), _column("run"), _column("at", number), _column("by"), _column("host", null=True)]
    note += [_column("text"), _column("folded"), _column("origin")]
    _table("ledger_note", note, ["key"], {"run": "ledger_run"})
    _index("ledger_note", "run")
    tag = [_column("key"), _column("run"), _column("at", number), _column("by"), _column("host", null=True)]
    tag += [_column("tag"), _column("given", truth), _column("origin")]
    _table("ledger_tag", tag, ["key"], {"run": "ledger_run"})
    _index("ledger_tag", "run")
    _index("ledger_tag", "tag")
    promotion = [_column("key"), _column("run"), _column("alias"), _column("checkpoint"), _column("step", whole)]
    promotion += [_column("at", number), _column("by"), _column("level"), _column("required")]
    _table("ledger_promotion", promotion, ["key"], {"run": "ledger_run"})
    _index("ledger_promotion", "run")
    _index("ledger_promotion", "alias")
    source = [_column("key"), _column("project"), _column("host"), _column("folder"), _column("seen_at", number)]
    _table("ledger_source", source, ["key"])

"""Who promoted what, and which checkpoint holds an alias now."""

from typing import Any

from sqlalchemy import and_, select

from treering.store.ledger.database import Database
from treering.store.ledger.models import CheckpointRow, PromotionRow, RunRow
from treering.store.ledger.search.conditions import Conditions


def promotions(database: Database) -> list[dict[str, Any]]:
    """All promotions, newest first.

    Returns:
        For each: project, experiment, alias, run, step, checkpoint (its digest), status of the checkpoint, level,
        required, by, at (Unix seconds), and whether the checkpoint holds the alias now.

    Raises:
        StoreError: the database does not answer.
    """
    columns = select(
        RunRow.project,
        RunRow.experiment,
        PromotionRow.alias,
        RunRow.id.label("run"),
        PromotionRow.step,
        PromotionRow.checkpoint,
        CheckpointRow.status,
        PromotionRow.level,
        PromotionRow.required,
        PromotionRow.by,
        PromotionRow.at,
    )
    same = and_(CheckpointRow.run == PromotionRow.run, CheckpointRow.digest == PromotionRow.checkpoint)
    with database.reading() as connection:
        conditions = Conditions(connection)
        query = columns.add_columns(conditions.newest_promotion().label("holds")).select_from(PromotionRow)
        query = query.join(RunRow, RunRow.key == PromotionRow.run).outerjoin(CheckpointRow, same)
        query = query.order_by(PromotionRow.at.desc(), conditions.exact(PromotionRow.key))
        found = [dict(row) for row in connection.execute(query).mappings()]
    return [{**row, "status": row["status"] or "unknown", "holds": bool(row["holds"])} for row in found]

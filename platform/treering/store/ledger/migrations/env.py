"""Alembic runs this file: it migrates in the transaction that the caller has begun, so that nothing is half done."""

from alembic import context

from treering.store.ledger.models import Base
from treering.store.ledger.schema import VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, version_table=VERSION_TABLE
)
context.run_migrations()

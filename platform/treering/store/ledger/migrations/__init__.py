"""The migrations of the ledger, which Alembic runs; `treering.store.ledger.database` calls it."""

"""The ledger: runs, checkpoints, corpora, licences, scores, tags, notes and promotions of all projects in one database.

A projection of run folders, except the notes and tags of people who cannot reach the folder. SQLite by default,
PostgreSQL by URL; its tables begin with `ledger_`, so that MLflow's tables may be in the same database.

Inside: `models` names the tables, `migrations/` makes them, `database` opens one, `ledger` writes,
`search/` answers questions.
"""

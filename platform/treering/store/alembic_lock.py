"""One migration at a time in a process: Alembic keeps the migration that runs in globals, which all threads share.

MLflow makes its tables by Alembic, and so does the ledger; `treering ship` opens both, each in a thread.
"""

import threading
from typing import Final

ALEMBIC: Final = threading.Lock()

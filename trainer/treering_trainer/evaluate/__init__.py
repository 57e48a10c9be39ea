"""Scores checkpoints: lm-eval's tasks and held-out perplexity, in one process a core, offline.

Reads a run's checkpoints, the task files that stage `curate` made and the held-out corpora; writes
`runs/<id>/evaluations/`, which MLflow, the dashboard and the report show.
"""

import logging
import os

# Libraries read these when they are imported: they fetch nothing, draw no progress bars, and fork no pool of processes
# for a bootstrap that takes milliseconds.
os.environ.update(
    HF_HUB_OFFLINE="1",
    HF_DATASETS_OFFLINE="1",
    HF_DATASETS_DISABLE_PROGRESS_BARS="1",
    TQDM_DISABLE="1",
    DISABLE_MULTIPROC="1",
    TOKENIZERS_PARALLELISM="false",
)

# lm-eval's hints are about options of its command line.
logging.getLogger("lm_eval").setLevel(logging.ERROR)

"""Treering: reproducibility and experiment tracking for large-scale language-model training.

Text becomes corpora, corpora and weights become a blend, a blend and a recipe become a run; every optimizer step of a
run lays down one ring in its run log. MLflow, the dashboard and the audit read what the run log holds.

This package never imports torch, deepspeed or streamlit: a training node, a dashboard host and an auditor's laptop all
import it.
"""

__version__ = "0.1.0"

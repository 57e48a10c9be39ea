"""Starts a training (`python -m treering_trainer.launch CONFIG`) and runs each of its ranks."""

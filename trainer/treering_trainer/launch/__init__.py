"""The start of a training, `python -m treering_trainer.launch CONFIG`, and every rank from its start to its end."""

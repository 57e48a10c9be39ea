"""Carries the run log into the stores; training never waits for it.

A follower process reads what is durable on disk and brings the registry (MLflow) up to date. It may die or be started
twice at any moment: its position is stored in the registry itself, together with what it shipped.
"""

"""Carries the run log to targets such as MLflow; training never waits for it.

A follower process reads what is durable on disk and brings every target up to date. It may die or be started twice at
any moment: its position is stored in the target itself, together with what it shipped.
"""

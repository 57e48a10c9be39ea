"""Plans: what a training would need and how long it would take on a cluster, before any process is started.

Models, no measurements; every formula names its source and what it leaves out.
"""

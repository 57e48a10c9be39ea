"""What a node can see of itself: environment, code, devices, telemetry.

Called when an attempt starts (its header records the answers) and beside its training thread (telemetry). Evidence is
collected whole; each module says which part of it makes the digest that decides whether a run may go on.
"""

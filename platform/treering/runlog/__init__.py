"""The run log: one ring a step, headers, manifests; the truth of which every store is a projection.

Kept empty of imports, so that `runlog.writer` stays close to the standard library.
"""

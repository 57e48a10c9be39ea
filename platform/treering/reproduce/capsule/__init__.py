"""A capsule: the records of a run in one zip file, for people elsewhere who have the corpora.

`write` packs a run, `unpack` brings it into a project; nothing of a capsule is executed by either.
"""

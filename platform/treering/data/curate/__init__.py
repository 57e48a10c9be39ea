"""Stage `curate`: extract, filter, dedup, hold out, make tasks, decontaminate, shuffle, in this order.

`pipeline` runs the steps; each of the other modules is one of them, or what two of them share. Text streams through:
between the steps only signatures and decisions stay in memory, some 200 bytes a document.
"""

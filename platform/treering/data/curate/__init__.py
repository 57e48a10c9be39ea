"""Stage `curate`: extract, filter, dedup, hold out, make tasks, decontaminate, shuffle, in this order.

`pipeline` runs the steps; each of the other modules is a step, or what two steps share. Text is streamed: between the
steps only signatures and decisions stay in memory, about 200 bytes for each document.
"""

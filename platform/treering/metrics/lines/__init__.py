"""One line about a run: what `treering runs`, its JSON and the dashboard say of a run, and which run needs attention.

`run_line` of `read` makes the line of any run. `attention` orders lines, `diverging` and `reasons` say why.
"""

"""The files of a project: `treering init` writes them, `treering rewind` adds the experiment of a branch.

`treering version` records the code that the stages depend on.
"""

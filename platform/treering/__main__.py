"""`python -m treering` is the command `treering`."""

from treering.cli import main

main()

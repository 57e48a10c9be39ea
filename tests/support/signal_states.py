"""Starts a child with a known set of ignored signals, whatever the state that pytest was started in."""

import signal


def started_with(*ignored):
    """In a child before its work: ignores these of SIGINT and SIGHUP, as a shell and `nohup` do, and not the others."""
    for number in (signal.SIGINT, signal.SIGHUP):
        usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
        signal.signal(number, signal.SIG_IGN if number in ignored else usual)

"""Makes a recorded run again, and says why two runs differ.

Works beside the runs: neither their folders nor their corpora change. The trainer runs in other processes.
"""

"""The telemetry of an attempt: readings of sensors and clocks, written by one collector a node.

    telemetry/node-00000.events.jsonl             what changed: devices, reasons of missing readings, lost readings, XID
              live/node-00000-<time>.jsonl        the newest readings of a node, a line a sample
              parts/<numbers>.<times>.<rows>.parquet      readings of all nodes, a new part a minute
              minutes/<as the part>.parquet       roll-up: of each minute the mean, the lowest, the highest and whose
              totals.json                         energy of every device up to the newest part
              rank-N.jsonl                        the form of earlier versions, which is read as well

A node's collector (`treering.collect`) appends to its own file below `live/`, and begins a new one each minute. The
collector of the first node puts closed files of all nodes into parts and removes them: a part is complete before its
sources go, and names them, so that a process killed between the two neither loses nor doubles a reading. Small parts
are merged, so that their number stays low. `reading.TelemetryFolder` is the one reader of all of it.

Telemetry fails open: what is torn or damaged is left out and counted.
"""

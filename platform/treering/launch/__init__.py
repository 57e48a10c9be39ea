"""Starts a training on several nodes: DeepSpeed's launcher over a hostfile, or a batch script for Slurm.

Everything that can be known beforehand is checked before anything is started, and the text that starts it is kept with
the run: its ranks put it into the attempt's header.
"""

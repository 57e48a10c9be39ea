"""The audit of runs that Megatron trained without Treering: from their launch, their data and nothing else."""

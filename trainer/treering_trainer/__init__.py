"""The trainer: DeepSpeed's pipeline engine over megatron-core layers, writing one ring a step into the run log."""

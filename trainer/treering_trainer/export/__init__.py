"""Writes a checkpoint's weights for other programs: safetensors by megatron-core's names, or a GPT-2 of Hugging Face.

Reads a checkpoint after checking its digests and rings; writes a folder that names the checkpoint.
"""

"""The forms in which weights are exported. Light: the command line imports it at every start."""

from typing import Literal

ExportFormat = Literal["safetensors", "huggingface"]
ExportDtype = Literal["fp32", "bf16", "fp16"]

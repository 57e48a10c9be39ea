"""NVML that answers from a recording, for tests on machines without a GPU."""

import importlib.util
import os
from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "fixtures" / "nvml" / "library"


def recording(name: str) -> Path:
    """The recorded answers of a node: `a100` (two devices), `h100` or `v100`."""
    return LIBRARY.parent / f"{name}.json"


def library(name: str):
    """The module that answers, for a function that takes NVML as an argument."""
    os.environ["RECORDED_NVML"] = str(recording(name))
    spec = importlib.util.spec_from_file_location("recorded_nvml_library", LIBRARY / "pynvml.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment(name: str) -> dict[str, str]:
    """The environment of a process that is to load the recording in place of the real module."""
    paths = [str(LIBRARY), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "RECORDED_NVML": str(recording(name))}

"""GPT-NeoX: reads a launch from its YAML files, which it also saves in each checkpoint.

A run is started with several YAML files that do not share a key; `-` and `_` are the same in a key. The number of GPUs
is not in them, so a global batch size may have to come from the checkpoint, where DeepSpeed writes it.

Source: github.com/EleutherAI/gpt-neox, ea7aefd8: megatron/neox_arguments/arguments.py and neox_args.py,
megatron/checkpointing.py, megatron/data/data_utils.py; DeepSpeed, runtime/engine.py, save_checkpoint.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from treering.audit.megatron.arguments import Arguments
from treering.audit.megatron.launch_arguments import REPEATED, Launch
from treering.audit.megatron.moved import moved_path
from treering.audit.megatron.report import Unbound
from treering.audit.megatron.saved import SavedRun
from treering.config.load import read_mapping
from treering.data.corpus.indexed import read_sequence_lengths
from treering.data.megatron.blend import compensated_sum, sum_in_turn
from treering.data.megatron.lineage import Lineage, lineage_named
from treering.errors import ConfigError, UserError

LINEAGE: Final = "gpt-neox"
CONFIGS: Final = "configs"
"""The folder of a checkpoint in which GPT-NeoX keeps the YAML files of the launch."""
MARKS: Final = frozenset({
    "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "pipe_parallel_size", "model_parallel_size",
    "train_data_paths", "data_path", "num_layers", "hidden_size", "checkpoint_factor", "hostfile",
    "weight_by_num_documents", "lr_decay_iters", "tokenizer_type", "vocab_file", "data_impl",
})  # fmt: skip
"""Keys of GPT-NeoX's YAML files that our description does not have."""
_DEFAULTS: Final[dict[str, Any]] = {"seed": 1234, "split": "969, 30, 1", "weighted_sampler_alpha": 1.0}


def is_neox_config(document: Mapping[str, Any]) -> bool:
    """Whether the keys of a YAML file are GPT-NeoX's."""
    return bool(MARKS & _normalized(document).keys())


def read_neox_configs(files: Sequence[Path]) -> Arguments:
    """The keys of YAML files that were given to GPT-NeoX together, with `_` for `-`.

    Args:
        files: at least one; errors name the last one.

    Raises:
        ConfigError: a file cannot be read, or two files have the same key, which GPT-NeoX refuses.
    """
    found: dict[str, Any] = {}
    origin: dict[str, Path] = {}
    for file in files:
        for key, value in _normalized(read_mapping(file, "a YAML file of GPT-NeoX")).items():
            if key in found:
                raise ConfigError(
                    str(file), key, f"a key that {origin[key]} has too", "each key in one file, as GPT-NeoX does"
                )
            found[key], origin[key] = value, file
    curriculum = found.get("curriculum_learning")
    if isinstance(curriculum, dict) and not curriculum.get("enabled"):
        del found["curriculum_learning"]
    return Arguments(files[-1], found)


def saved_configs(folder: Path) -> list[Path]:
    """The YAML files that GPT-NeoX saved in the folder of a checkpoint."""
    try:
        return sorted(each for each in (folder / CONFIGS).iterdir() if each.suffix in (".yml", ".yaml", ".json"))
    except OSError:
        return []


def _normalized(document: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key).replace("-", "_"): value for key, value in document.items()}


def _data(keys: Arguments, moved: Mapping[str, str], stated: Lineage | None) -> tuple[str, list[dict[str, Any]]]:
    """The key that named the data of the training, and its entries.

    Args:
        keys: of the launch.
        moved: today's place of each folder that moved.
        stated: the lineage that a description states, which may name the version of Python.
    """
    paths = keys.held("train_data_paths")
    if not paths:
        path = keys.held("data_path")
        if not isinstance(path, str) or not path:
            raise keys.wrong("data_path", "a path, or train_data_paths with a list of them")
        return "data_path", [{"prefix": path}]
    if not isinstance(paths, list) or not all(isinstance(each, str) for each in paths):
        raise keys.wrong("train_data_paths", "a list of paths")
    weights = keys.held("train_data_weights") or [1.0] * len(paths)
    numbers = isinstance(weights, list) and all(
        isinstance(each, int | float) and not isinstance(each, bool) for each in weights
    )
    if not numbers or len(weights) != len(paths):
        raise keys.wrong("train_data_weights", f"{len(paths)} numbers, one for each of train_data_paths")
    rows = zip(paths, weights, strict=True)
    entries = [{"prefix": path, "weight": float(weight)} for path, weight in rows]
    if keys.truth("weight_by_num_documents"):
        by_version = _weights_by_python(keys, [entry["prefix"] for entry in entries], moved)
        newer = stated is not None and stated.compensated
        for entry, weight in zip(entries, by_version[newer], strict=True):
            entry["weight"] = weight
    return "train_data_paths", entries


def _batch_size(keys: Arguments, state: Mapping[str, Any]) -> tuple[str, int]:
    """The global batch size, and where it is from: a key, or DeepSpeed's state in the checkpoint.

    Raises:
        UserError: neither holds it, and the number of GPUs is not known.
    """
    if keys.held("train_batch_size") is not None:
        return "train_batch_size", keys.needed("train_batch_size")
    config = state.get("ds_config")
    size = _positive(config.get("train_batch_size")) if isinstance(config, dict) else None
    if size is not None:
        return "train_batch_size (ds_config)", size
    replicas = _positive(state.get("dp_world_size"))
    gpus = keys.number("global_num_gpus")
    if replicas is None and gpus:
        shared = [max(keys.number(f"{kind}_parallel_size") or 1, 1) for kind in ("pipe", "model")]
        replicas = gpus // math.prod(shared)
    if replicas is None or keys.held("train_micro_batch_size_per_gpu") is None:
        raise UserError(
            f"{keys.file}: the global batch size is missing: found neither train_batch_size nor a number of GPUs"
            " (global_num_gpus); give `global_batch_size` in megatron-run.yaml, with this file under `launch:`"
            " (docs/megatron.md)"
        )
    steps = keys.number("gradient_accumulation_steps") or 1
    return "train_micro_batch_size_per_gpu", keys.needed("train_micro_batch_size_per_gpu") * steps * replicas


def _stated_lineage(stated: Mapping[str, Any]) -> Lineage | None:
    """The lineage that a description states, or None; a wrong name is refused together with the description."""
    try:
        return lineage_named(str(stated["lineage"])) if "lineage" in stated else None
    except UserError:
        return None


def _positive(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def document_weights(
    counts: Sequence[int], alpha: float, add: Callable[[Sequence[float]], float] = sum_in_turn
) -> list[float]:
    """The weights of `weight_by_num_documents`, in double precision and in GPT-NeoX's order of operations.

    Source: megatron/data/data_utils.py there, weights_by_num_docs.

    Args:
        counts: sequences of each data set.
        alpha: `weighted_sampler_alpha`.
        add: Python's `sum`: `sum_in_turn` up to Python 3.11, `compensated_sum` later.
    """
    if len(counts) == 1:
        return [1.0]
    whole = sum(counts)
    shares = [count / whole for count in counts]
    powers = [share**alpha for share in shares]
    total = add(powers)
    products = [power / total * (1 - share) for power, share in zip(powers, shares, strict=True)]
    total = add(products)
    return [product / total for product in products]


def neox_launch(
    keys: Arguments,
    saved: SavedRun | None,
    moved: Mapping[str, str],
    stated: Mapping[str, Any] = MappingProxyType({}),
) -> Launch:
    """The launch in the YAML files of GPT-NeoX.

    Args:
        keys: by `read_neox_configs`.
        saved: a checkpoint of the run, or None.
        moved: today's place of each folder that moved, by its name in the run.
        stated: fields of a description, which are not read in the files.

    Raises:
        UserError: the run's data order cannot be rebuilt, or the global batch size is missing.
        EvidenceError: a key is missing or has a wrong value, or an `.idx` is missing.
    """
    keys.refuse(() if saved is None else saved.weights)
    if keys.held("train_epochs"):
        raise UserError(
            f"{keys.file}: launched with train_epochs: the order is built for whole epochs; this data order cannot be"
            " rebuilt"
        )
    state: Mapping[str, Any] = {} if saved is None else saved.state
    lineage = _stated_lineage(stated)
    python_stated = lineage is not None and lineage.name != lineage.base
    asked: dict[str, Callable[[], tuple[str | None, Any]]] = {
        "lineage": lambda: (None, LINEAGE),
        "data": lambda: _data(keys, moved, lineage),
        "seed": lambda: ("seed", _number(keys, "seed")),
        "sequence_length": lambda: ("seq_length", _number(keys, "seq_length")),
        "train_iters": lambda: ("train_iters", _number(keys, "train_iters")),
        "global_batch_size": lambda: _batch_size(keys, state),
        "consumed_samples": lambda: ("global_samples", _positive(state.get("global_samples"))),
    }
    left_out = stated.keys() | ({"train_iters"} if "train_samples" in stated else set())
    found = {field: ask() for field, ask in asked.items() if field not in left_out}
    if found.get("data", ("", None))[0] == "data_path":
        found["split"] = "split", keys.text("split") or _DEFAULTS["split"]
    found = {field: said for field, said in found.items() if said[1] is not None}
    return Launch(
        values={field: value for field, (_, value) in found.items()},
        arguments={field: key for field, (key, _) in found.items()},
        repeated={key: keys.shown(key) for key in REPEATED if keys.held(key) is not None},
        lineages=(LINEAGE,),
        open_ends=tuple(keys.open_ends()),
        unbound=(
            *keys.unbound(),
            *(() if python_stated or "data" in stated else _unbound_python(keys, moved)),
        ),
    )


def _number(keys: Arguments, key: str) -> int:
    """A whole number, or GPT-NeoX's default."""
    return keys.needed(key) if keys.held(key) is not None or key not in _DEFAULTS else int(_DEFAULTS[key])


def _weights_by_python(
    keys: Arguments, prefixes: Sequence[str], moved: Mapping[str, str]
) -> tuple[list[float], list[float]]:
    """The weights of `weight_by_num_documents` up to Python 3.11 and later, by the sequences that are listed today."""
    counts = [len(read_sequence_lengths(_index(prefix, moved))) for prefix in prefixes]
    alpha = keys.decimal("weighted_sampler_alpha")
    exponent = _DEFAULTS["weighted_sampler_alpha"] if alpha is None else alpha
    return document_weights(counts, exponent), document_weights(counts, exponent, compensated_sum)


def _unbound_python(keys: Arguments, moved: Mapping[str, str]) -> Iterator[Unbound]:
    """The unbound version of Python, if it changes the weights by documents."""
    paths = keys.held("train_data_paths")
    if not (paths and keys.truth("weight_by_num_documents")):
        return
    older, newer = _weights_by_python(keys, paths, moved)
    if older != newer:
        yield Unbound(
            "The version of Python that trained",
            "GPT-NeoX adds the weights of weight_by_num_documents with Python's `sum`, which rounds otherwise since "
            "Python 3.12. The answer is by Python 3.11 or earlier.",
            f"State it with --lineage {LINEAGE}-python3.12 or {LINEAGE}-python3.11.",
        )


def _index(prefix: str, moved: Mapping[str, str]) -> Path:
    return Path(f"{moved_path(prefix, moved)}.idx")

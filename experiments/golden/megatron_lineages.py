"""Golden answers of Megatron's lineages: what each lineage's own index builder reads, sample by sample.

    python experiments/golden/megatron_lineages.py megatron-core-0.16.1 --output DIR
    python experiments/golden/megatron_lineages.py bigscience --checkout DIR --commit COMMIT --output DIR

For a release of megatron-core that is installed, PYTHONPATH may name the folder of another release. For all other
programs, `--checkout` names a folder with the program's `megatron/` package in which its own `helpers` are compiled.
This script fetches and compiles nothing. It runs the program's builder and reads the samples through the program's
datasets. What the builder asks of a cluster is answered for one process on a processor: process groups, ranks, and
tensors that the program would make on a GPU.

The kept answers are those of megatron-core 0.5.0, 0.6.0, 0.7.0, 0.10.0, 0.11.0, 0.12.3, 0.13.1 and 0.16.1 from PyPI,
and of checkouts of the other programs at the commits that `treering.data.megatron.lineage` names: 47 blends, over one
path, several epochs, weights, weight 0, splits and paths of a split's own. Each golden file names its builder.

`tests/data/test_megatron_lineages.py` holds Treering's orders against the files. With `--caches` the index caches
that the program left for some cases are kept too, one archive a program, for `tests/audit/test_megatron_cache.py`.
"""

import argparse
import contextlib
import hashlib
import inspect
import io
import json
import sys
import tempfile
import types
import warnings
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from treering.data.corpus.indexed import index_bytes

LENGTHS = {
    "wiki": [(7 * n * n + 3 * n) % 53 + 1 for n in range(37)],
    "books": [100 + (31 * n) % 97 for n in range(7)],
    "code": [(5 * n) % 9 for n in range(90)],  # with empty sequences
    "tiny": [9, 40, 17],
    "edge": [61, 60, 61, 60, 61, 60, 61, 60, 61, 60, 61, 60, 61, 60, 61, 60, 61, 60, 61, 60, 61, 60, 61, 60, 61, 60, 61,
             60, 61, 60, 61, 61, 16],  # 122 samples of 16 tokens and one token
}  # fmt: skip
"""Tokens of each sequence; all tokens are different, so that a sample's tokens say which documents it holds."""


def case(
    name: str, data: str, num_samples: int | None, split: str | None = "100,0,0", **options: Any
) -> dict[str, Any]:
    """A blend; `data` are paths, each after its weight where it has one."""
    words = data.split()
    weighted = words[0][0].isdigit()
    return {
        "name": name,
        "paths": words[1::2] if weighted else words,
        "weights": [float(word) for word in words[::2]] if weighted else None,
        "split": split,
        "num_samples": num_samples,
        "sequence_length": 16,
        "seed": 1234,
        **options,
    }


TWICE = [*LENGTHS, *LENGTHS]
EQUAL = " ".join(f"0.1 {name}" for name in TWICE)
UNEVEN = " ".join(
    f"{weight} {name}" for weight, name in zip((0.2, 2, 0.15, 0.1, 0.2, 0.2, 0.1, 1, 0.1, 0.15), TWICE, strict=True)
)
"""Weights whose sum differs in its last bit by the order of addition, and with it some near ties."""

CASES = (
    case("one path, part of an epoch", "wiki", 40),
    case("one path, a whole epoch", "edge", 122),
    case("one path, a sample more than an epoch", "edge", 123),
    case("one path, a third of the last epoch", "wiki", 153),
    case("one path, just below 80 % of the last epoch", "edge", 122 + 96),
    case("one path, 80 % of the last epoch", "edge", 122 + 97),
    case("one path, 87 % of the last epoch", "wiki", 188),
    case("one path, just below 95 % of the last epoch", "edge", 122 + 114),
    case("one path, 95 % of the last epoch", "edge", 122 + 115),
    case("one path, a sample more than the last epoch has alone", "wiki", 131),
    case("one path, 7.4 epochs", "tiny", 30),
    case("a split", "wiki", 70, "80,15,5"),
    case("a split by thirds", "edge", 60, "1,1,1"),
    case("a split of one number", "code", 30, "7"),
    case("one path with a weight", "1.0 edge", 122),
    case("a blend that is asked exactly an epoch", "0.4 edge 0.6 wiki", 303),
    case("a blend of several epochs", "0.3 tiny 0.7 code", 200),
    case("a blend of weights that do not sum to 1", "3 wiki 5 books 2 code", 150, "85,15,0"),
    case("a blend of ten equal weights", EQUAL, 160),
    case("a blend whose sum depends on the order of addition", UNEVEN, 113),
    case("a blend with ties", "1 wiki 1 books", 77),
    case("a blend whose last epochs stand apart or not", "0.5 edge 0.3 wiki 0.2 books", 430),
    case("a blend of a small and a large share", "0.999 code 0.001 tiny", 90),
    case("weight 0 first", "0 wiki 1 books", 50),
    case("weight 0 last", "1 books 0 wiki", 50),
    case("weight 0 of a path without a whole sample", "0.5 wiki 0 short 0.5 code", 50),
    case("paths without weights", "wiki books", 60),
    case("paths without weights, to the end", "wiki tiny", None),
    case("the split's own path", "edge", 122, None),
    case("the split's own path with a weight", "1.0 edge", 122, None),
    case("the split's own paths with weights", "0.25 wiki 0.75 books", 140, None),
    case("the split's own paths without weights", "wiki books tiny", 100, None),
    case("the split's own paths, one of several epochs", "0.9 tiny 0.1 wiki", 90, None),
    case("the split's own paths, asked exactly an epoch", "0.4 edge 0.6 wiki", 303, None),
    case("the split's own paths, last epochs apart or not", "0.5 edge 0.3 wiki 0.2 books", 430, None),
    case("the split's own paths, ten of equal weights", EQUAL, 160, None),
    case("the split's own paths, whose sum depends on the order of addition", UNEVEN, 113, None),
    case("the split's own paths, weight 0 first", "0 wiki 1 books", 50, None),
    case("the split's own paths, weight 0 last", "1 books 0 wiki", 50, None),
    case("the split's own paths, weight 0 without a whole sample", "0.5 wiki 0 short 0.5 code", 50, None),
    case("the split's own paths, another seed and length", "0.6 wiki 0.4 code", 60, None, sequence_length=7, seed=7),
    case("another seed and length", "0.6 wiki 0.4 code", 60, sequence_length=7, seed=7),
    case("renormalized weights", "0.1 tiny 0.9 code", 90, renormalized=True),
    case("an exact number of epochs", "wiki", 70, exact_epochs=3),
    case("an exact number of epochs, the last one apart", "wiki", 140, exact_epochs=3),
    case("parts of the sequences", "0.5 wiki 0.5 edge", 80, None, ranges=[[0.0, 0.5], [0.25, 1.0]]),
    case("a part of one path", "edge", 100, None, ranges=[[0.0, 0.95]]),
)
CACHED = {
    "a split": None,
    "a blend of several epochs": "cache",
    "a blend whose last epochs stand apart or not": "cache",
    "the split's own path": None,
    "the split's own paths with weights": "cache",
    "parts of the sequences": None,
}
"""Cases whose index caches are kept, with `--data-cache-path`."""
ALL_LENGTHS = {**LENGTHS, "short": [3, 5]}


def write(folder: Path) -> None:
    """Writes the token files."""
    first = 0
    for name, lengths in ALL_LENGTHS.items():
        tokens = (first + np.arange(sum(lengths))).astype(np.uint16)
        first += len(tokens)
        (folder / f"{name}.bin").write_bytes(tokens.tobytes())
        (folder / f"{name}.idx").write_bytes(index_bytes(np.array(lengths, dtype=np.int32)))


def words_of(asked: dict[str, Any]) -> list[str]:
    """The data paths as a command line has them."""
    if asked["weights"] is None:
        return list(asked["paths"])
    return [word for pair in zip(asked["weights"], asked["paths"], strict=True) for word in map(str, pair)]


@contextlib.contextmanager
def one_process() -> Iterator[None]:
    """A process group of one process, and tensors on the processor."""
    import torch

    torch.cuda.LongTensor = torch.LongTensor
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def core_samples(asked: dict[str, Any], release: tuple[int, int]) -> Iterator[np.ndarray]:
    """Samples of the training set of a release of megatron-core, through its own builder."""
    from megatron.core.datasets import blended_megatron_dataset_builder as builders
    from megatron.core.datasets import gpt_dataset

    num_samples, words = asked["num_samples"], words_of(asked)
    config_fields = gpt_dataset.GPTDatasetConfig.__dataclass_fields__
    paired = release >= (0, 7)
    blend: Any = words
    if paired:
        blend = (list(asked["paths"]), asked["weights"])
    options = {
        "random_seed": asked["seed"],
        "sequence_length": asked["sequence_length"],
        "path_to_cache": str(Path("cache").resolve()) if CACHED.get(asked["name"], "cache") else None,
        "reset_position_ids": False,
        "reset_attention_mask": False,
        "eod_mask_loss": False,
        "create_attention_mask": False,
        "is_built_on_rank": lambda: True,
        "tokenizer": types.SimpleNamespace(
            pad=0, eod=0, vocab_size=60_000, unique_identifiers={"class": "none"}, bos=0, eos=0
        ),
        "renormalize_blend_weights": asked.get("renormalized", False),
    }
    if asked.get("exact_epochs") or asked.get("ranges"):
        raise NotImplementedError("no release takes a number of epochs, or parts of the sequences")
    if asked.get("renormalized") and "renormalize_blend_weights" not in config_fields:
        raise NotImplementedError("this release has no --renormalize-blend-weights")
    if asked["split"] is None:
        options["blend_per_split"] = [blend, None, None]
    else:
        options |= {"blend": blend, "split": asked["split"]}
    config = gpt_dataset.GPTDatasetConfig(**{name: value for name, value in options.items() if name in config_fields})
    other = None if num_samples is None or asked["weights"] is None else 1
    sizes = [num_samples, other, other] if paired else [num_samples, 1, 1]
    arguments: list[Any] = [gpt_dataset.GPTDataset, sizes]
    if "is_built_on_rank" not in config_fields:
        arguments.append(lambda: True)
    train = builders.BlendedMegatronDatasetBuilder(*arguments, config).build()[0]
    for g in range(min(len(train), num_samples or len(train))):
        dataset, k = train, g
        if hasattr(train, "datasets"):
            dataset, k = train.datasets[train.dataset_index[g]], train.dataset_sample_index[g]
        yield dataset._query_document_sample_shuffle_indices(k)[0]  # noqa: SLF001 - the tokens before shifts and masks


def stand_in(name: str, path: Path | None = None, **attributes: Any) -> types.ModuleType:
    """A package whose folder is the program's and whose own code is not run."""
    module = types.ModuleType(name)
    if path is not None:
        module.__path__ = [str(path)]
    for attribute, value in attributes.items():
        setattr(module, attribute, value)
    sys.modules[name] = module
    return module


def prepare_fork(checkout: Path) -> types.SimpleNamespace:
    """Makes a fork's `megatron.data` importable without its training code; returns its arguments."""
    args = types.SimpleNamespace(
        train_data_exact_num_epochs=None, return_data_index=False, use_dataset_only=False, train_desc_path=None,
        train_doc_idx_path=None, train_sample_idx_path=None, train_shuffle_idx_path=None,
    )  # fmt: skip
    import torch

    class OneRank(types.ModuleType):
        def __getattr__(self, name: str) -> Callable[[], Any]:
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda: None if name.endswith("_group") else int("world_size" in name)

    mpu = OneRank("megatron.mpu")
    sys.modules["megatron.mpu"] = sys.modules["megatron.core.mpu"] = mpu
    package = checkout / "megatron"
    stand_in("megatron", package, print_rank_0=lambda *_: None, is_rank_0=lambda: True, get_args=lambda: args, mpu=mpu)
    stand_in("megatron.core", package / "core", mpu=mpu)
    stand_in("megatron.data", package / "data")
    for name in ("online_dataset", "pairwise_dataset"):  # of GPT-NeoX; no run here reads them
        stand_in(f"megatron.data.{name}", OnlineDataset=None, PairwiseDataset=None)
    accelerator = types.SimpleNamespace(LongTensor=torch.LongTensor)
    stand_in("deepspeed.accelerator", get_accelerator=lambda: accelerator)
    for name, kind in (("float", float), ("int", int), ("bool", bool)):
        if name not in np.__dict__:
            setattr(np, name, kind)
    return args


def fork_samples(asked: dict[str, Any], args: types.SimpleNamespace) -> Iterator[np.ndarray]:
    """Samples of the training set of Megatron-LM before megatron-core, or of Megatron-DeepSpeed."""
    from megatron.data import gpt_dataset

    num_samples = asked["num_samples"]
    if num_samples is None:
        raise NotImplementedError("the program needs a number of samples")
    if asked.get("renormalized"):
        raise NotImplementedError("the program has no --renormalize-blend-weights")
    numbers, words = [num_samples, 1, 1], words_of(asked)
    common = (asked["sequence_length"], asked["seed"], True)
    builder = gpt_dataset.build_train_valid_test_datasets
    place = CACHED.get(asked["name"]) if "data_cache_path" in inspect.signature(builder).parameters else None
    kept = {} if place is None else {"data_cache_path": place}
    exact = asked.get("exact_epochs")
    if exact is not None and not hasattr(gpt_dataset, "get_accelerator"):
        raise NotImplementedError("the program has no --train-data-exact-num-epochs")
    args.train_data_exact_num_epochs = exact
    if asked["split"] is not None:
        train = builder(words, "mmap", asked["split"], numbers, *common, **kept)[0]
    elif hasattr(gpt_dataset, "build_dataset_group"):
        if asked["weights"] is None and len(asked["paths"]) > 1:
            raise NotImplementedError("the program takes several paths of a split's own with weights")
        ranges = asked.get("ranges") or [[0, 1]] * len(asked["paths"])
        train = gpt_dataset.build_dataset_group(
            "train", asked["paths"], asked["weights"] or [1.0] * len(asked["paths"]),
            [f"{first}:{end}" for first, end in ranges], "mmap", numbers, *common, "train",
        )  # fmt: skip
    elif hasattr(gpt_dataset, "build_dataset") and not asked.get("ranges"):
        train = builder(None, "mmap", None, numbers, *common, words, **kept)[0]
    else:
        raise NotImplementedError("the program has no data paths of a split's own")
    for g in range(min(len(train), num_samples)):
        yield train[g]["text"]


def neox_samples(asked: dict[str, Any]) -> Iterator[np.ndarray]:
    """Samples of the training loader of GPT-NeoX, one a step."""
    from megatron.data import data_utils

    if asked["num_samples"] is None or asked.get("ranges") or asked.get("exact_epochs") or asked.get("renormalized"):
        raise NotImplementedError("the program trains for a number of iterations, on whole paths")
    fields: dict[str, Any] = dict.fromkeys(
        f"{group}{split}_{kind}data_paths"
        for group in ("", "pos_", "neg_")
        for split in ("train", "valid", "test")
        for kind in ("", "label_", "reward_")
    )
    fields |= {
        "is_pipe_parallel": False, "dataset_impl": "gpt2", "data_impl": "mmap", "pack_impl": "packed",
        "allow_chopped": True, "train_iters": asked["num_samples"], "train_batch_size": 1, "batch_size": 1,
        "eval_interval": 10**9, "eval_iters": 1, "train_epochs": None, "weight_by_num_documents": False,
        "seq_length": asked["sequence_length"], "seed": asked["seed"], "mmap_warmup": False, "num_workers": 0,
        "precompute_model_name": None, "use_shared_fs": True, "split": asked["split"],
        "rope_fusion": False,
    }  # fmt: skip
    if asked["split"] is not None:
        if len(asked["paths"]) > 1 or asked["weights"] is not None:
            raise NotImplementedError("the program takes one path with a split, without a weight")
        fields["data_path"] = asked["paths"][0]
    else:
        for split in ("train", "valid", "test"):
            fields[f"{split}_data_paths"] = asked["paths"]
            fields[f"{split}_data_weights"] = asked["weights"] or [1.0] * len(asked["paths"])
    sys.modules["megatron.mpu"].get_data_parallel_world_size = lambda: 1
    loaders = data_utils.build_train_valid_test_data_loaders(types.SimpleNamespace(**fields))
    for batch in islice(loaders["train"], asked["num_samples"]):
        yield from batch["text"].numpy()


def answer(asked: dict[str, Any], read: Callable[[dict[str, Any]], Iterator[np.ndarray]]) -> dict[str, Any]:
    """The samples of a case: their number, digest, and the first tokens of the first ones; or the refusal."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            samples = np.stack(list(read(asked)))
    except NotImplementedError as error:
        return {"absent": str(error)}
    except (AssertionError, ValueError, IndexError, TypeError) as error:
        return {"refused": f"{type(error).__name__}: {error}".split("\n")[0][:90]}
    digest = "sha256:" + hashlib.sha256(samples.astype("<u4").tobytes()).hexdigest()
    return {"num_read": len(samples), "digest": digest, "first_tokens": samples[:8, 0].tolist()}


def main() -> None:
    """Writes the golden file of one program."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program", help="names the golden file: megatron-core-0.16.1, bigscience, gpt-neox ...")
    parser.add_argument("--checkout", type=Path, help="folder with the program's megatron/ package and helpers")
    parser.add_argument("--commit", help="commit of the checkout")
    parser.add_argument("--caches", type=Path, help="folder for an archive of the index caches of some cases")
    parser.add_argument("--output", type=Path, required=True, help="folder of the golden files")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    output = options.output.resolve()
    core = options.program.startswith("megatron-core")
    if options.checkout is not None and core:
        sys.path.insert(0, str(options.checkout.resolve()))
        stand_in("megatron", options.checkout.resolve() / "megatron")
    args = None if core else prepare_fork(options.checkout.resolve())
    if core:
        major, minor = options.program.removeprefix("megatron-core-").split(".")[:2]
        read = partial(core_samples, release=(int(major), int(minor)))
    else:
        read = neox_samples if options.program == "gpt-neox" else partial(fork_samples, args=args)
    source = options.commit or f"megatron-core {metadata.version('megatron-core')}"
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), one_process():
        write(Path(folder))
        answers: dict[str, Any] = {}
        caches: dict[str, bytes] = {}
        for asked in CASES:
            answers[asked["name"]] = answer(asked, read)
            indices = [*Path(folder).glob("*.npy"), *Path(folder).glob("*/*.*"), *Path(folder).glob("*/*/*/*")]
            for left in indices:
                if asked["name"] in CACHED:
                    caches[f"{asked['name']}/{left.relative_to(Path(folder).resolve())}"] = left.read_bytes()
                left.unlink()  # the next case is built, not read from a cache
    if options.caches is not None:
        told = {"lengths": ALL_LENGTHS, "cases": {asked["name"]: asked for asked in CASES if asked["name"] in CACHED}}
        pack(options.caches / f"{options.program}.zip", source, {"cases.json": json.dumps(told).encode(), **caches})
    save(output / f"{options.program}.json", {"program": options.program, "builder": source}, answers)
    save(output / "cases.json", {"lengths": ALL_LENGTHS}, {asked["name"]: asked for asked in CASES})


def pack(path: Path, source: str, files: dict[str, bytes]) -> None:
    """Writes an archive whose bytes depend on its files alone; its comment names the builder."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.comment = source.encode()
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED, 9)


def save(path: Path, head: dict[str, Any], cases: dict[str, Any]) -> None:
    """Writes a file with one line a case."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in cases.items())
    path.write_text(f'{json.dumps(head)[:-1]}, "cases": {{\n{lines}\n}}}}\n', encoding="utf-8")


if __name__ == "__main__":
    main()

"""The files of Megatron's index caches: where each program keeps them, and how their names describe a blend.

    megatron-core             HASH-GPTDataset-train-description.txt (JSON), -document_index.npy, -sample_index.npy,
                              -shuffle_index.npy; HASH-BlendedDataset-train-..., -dataset_index.npy. In
                              --data-cache-path, else in PREFIX/cache/GPTDataset_indices. Before 0.9 without the split.
    Megatron-DeepSpeed of     HASH.dsc (lines of text), HASH_doc_idx.npy, HASH_sample_idx.npy, HASH_shuffle_idx.npy; for
    deepspeedai, Megatron-LM  a blend HASH.dsc, HASH_index.npy, in --data-cache-path alone. In `index-cache` beside the
    of 2023                   data, then in --data-cache-path.
    bigscience, GPT-NeoX,     PREFIX_NAME_indexmap_SAMPLESns_LENGTHsl_SEEDs_doc_idx.npy, _sample_idx.npy and
    Megatron-LM before 2023   _shuffle_idx.npy; GPT-NeoX since 2024 with _packedpi or _packedpi_ac before _doc_idx.npy.
                              NAME is train, train_0 ... for GPT-NeoX's train_data_paths, or bigscience's group name.

The hash is an MD5 of the description. No name depends on the content of the data.

Source: Megatron-LM, core_v0.4.0 to core_v0.19.0, megatron/core/datasets/gpt_dataset.py, blended_dataset.py and
megatron_dataset.py; v2.5 and 23.06, megatron/data/gpt_dataset.py; deepspeedai/Megatron-DeepSpeed 4efb479d and
bigscience-workshop/Megatron-DeepSpeed 8387ae17, megatron/data/gpt_dataset.py and blendable_dataset.py;
EleutherAI/gpt-neox, v1.0 to ea7aefd8, megatron/data/gpt2_dataset.py and data_utils.py.
"""

import tokenize
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from glob import escape
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from treering.data.megatron.blend import MegatronBlend
from treering.data.megatron.cache_descriptions import Parsed, parse_json, parse_lines, prefix_of
from treering.errors import EvidenceError
from treering.files import read_text

_CORE: Final = "megatron-core-"
_DESCRIBED: Final = ("megatron-deepspeed", "megatron-lm-legacy")
_NAMED: Final = ("megatron-lm-legacy", "bigscience", "gpt-neox")
_ARRAYS: Final = ("document", "sample", "shuffle")
_SHORT: Final = {"document": "doc_idx", "sample": "sample_idx", "shuffle": "shuffle_idx"}
_NEOX_ENDINGS: Final = ("_packedpi_ac", "_packedpi", "")


@dataclass(frozen=True, slots=True)
class CachedIndex:
    """One index in a cache of Megatron.

    Attributes:
        description: its description file; the document index of a cache without descriptions.
        component: the dataset of the index, None for the blend.
        arrays: the files of its arrays, by name (document, sample, shuffle, or dataset).
        num_epochs: epochs by the description, None if it lacks them.
    """

    description: Path
    component: int | None
    arrays: Mapping[str, Path]
    num_epochs: int | None = None

    def array(self, name: str) -> NDArray[Any]:
        """One of its arrays, memory-mapped: whole numbers.

        Raises:
            EvidenceError: the file is missing, or not an array of whole numbers.
        """
        path = self.arrays[name]
        if not path.is_file():
            _refuse_array(path, "No such file, or not a regular one")
        try:
            array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError, OverflowError, SyntaxError, TypeError, tokenize.TokenError) as error:
            _refuse_array(path, f"cannot be read ({error})")
        if not isinstance(array, np.ndarray) or not np.can_cast(array.dtype, np.int64) or array.dtype.kind not in "iu":
            found = getattr(array, "dtype", "an archive")
            _refuse_array(path, f"found {found}", found)
        return array

    @property
    def name(self) -> str:
        """The common part of the files' names, for messages."""
        text = str(self.description)
        for ending in ("-description.txt", ".dsc", f"_{_SHORT['document']}.npy"):
            text = text.removesuffix(ending)
        return text


def _refuse_array(path: Path, problem: str, found: object = None) -> NoReturn:
    """Ends with the error of a file that is not an array of a cached index.

    Raises:
        EvidenceError: always.
    """
    expected, remedy = "an array of whole numbers of Megatron's index cache", "remove the cache"
    text = f"{path}: {problem}, expected {expected}; {remedy}"
    raise EvidenceError(text, file=path, found=found, expected=expected, remedy=remedy) from None


@dataclass(frozen=True, slots=True)
class FoundCache:
    """The cached indices of a blend.

    Attributes:
        indices: those whose names or descriptions name the blend; of several for one dataset, the newest.
        unread: descriptions that cannot be read, with the reason: they may name the blend.
    """

    indices: tuple[CachedIndex, ...] = ()
    unread: tuple[str, ...] = ()


Described = tuple[Path, dict[str, Any]]


@dataclass
class _Search:
    """A search for the cache of one blend.

    Attributes:
        blend: the blend of the run.
        folder: `--data-cache-path`, None where the run had none.
        places: where the prefixes are today.
        unread: descriptions that cannot be read.
    """

    blend: MegatronBlend
    folder: Path | None
    places: Sequence[Path]
    unread: dict[Path, str] = field(default_factory=dict)
    _read: dict[tuple[Path, str], dict[str, list[Described]]] = field(default_factory=dict)

    def core(self) -> Iterator[CachedIndex]:
        """The indices of megatron-core."""
        for component, (place, asked) in enumerate(zip(self.places, self.blend.requested(), strict=True)):
            folder = self.folder or place / "cache" / "GPTDataset_indices"
            named = self._naming(component, folder, "GPTDataset", parse_json)
            fitting = [path for path, content in named if self.is_dataset(content["datasets"][0], asked)]
            yield from _newest(fitting, component, _core_files(_ARRAYS))
        if self.folder is None or not self.blend.blended:
            return  # the blend is not cached
        fitting = [
            path
            for path, content in self._naming(0, self.folder, "BlendedDataset", parse_json)
            if self._fits(content, self.is_dataset)
        ]
        yield from _newest(fitting, None, _core_files(("dataset",)))

    def described(self) -> Iterator[CachedIndex]:
        """The indices with descriptions of lines of text."""
        for component, (place, asked) in enumerate(zip(self.places, self.blend.requested(), strict=True)):
            fitting: dict[Path, int | None] = {}
            for folder in dict.fromkeys(filter(None, (place.parent / "index-cache", self.folder))):
                if not fitting:  # the program looks into the second folder where the first one has none
                    named = self._naming(component, folder, "GPT Dataset", parse_lines)
                    fitting = {
                        path: _whole(content["datasets"][0].get("Number of epochs"))
                        for path, content in named
                        if self._is_described(content["datasets"][0], asked)
                    }
            yield from _newest(fitting, component, _described_files, fitting.get)
        if self.folder is None or not self.blend.blended:
            return
        blends = [
            path
            for path, content in self._naming(0, self.folder, "Blendable dataset", parse_lines)
            if self._fits(content, self._is_described)
        ]
        yield from _newest(blends, None, lambda path: {"dataset": path.with_name(f"{path.stem}_index.npy")})

    def named(self) -> Iterator[CachedIndex]:
        """The indices without descriptions, by their names."""
        neox = self.blend.lineage.base == "gpt-neox"
        for component, (place, asked) in enumerate(zip(self.places, self.blend.requested(), strict=True)):
            config = f"indexmap_{asked}ns_{self.blend.sequence_length}sl_{self.blend.seed}s"
            fitting: list[Path] = []
            for ending in _NEOX_ENDINGS if neox else ("",):
                names = f"{escape(place.name)}_{self._group(component)}_{config}{ending}_{_SHORT['document']}.npy"
                fitting = fitting or [path for path in _globbed(place.parent, names) if path.is_file()]
            yield from _newest(fitting, component, _named_files)

    def _group(self, component: int) -> str:
        """The name that the program gives to a dataset, as a pattern."""
        if self.blend.ranges is not None:
            return "*"  # bigscience's group name is not kept
        several = self.blend.lineage.base == "gpt-neox" and self.blend.split is None
        return f"{self.blend.index_split}_{component}" if several else self.blend.index_split

    def is_dataset(self, content: Mapping[str, Any], asked: int | None) -> bool:
        """Whether a JSON description has the blend's settings."""
        wanted = {
            "index_split": self.blend.index_split,
            "random_seed": self.blend.seed,
            "sequence_length": self.blend.sequence_length,
            "split": self.blend.split,
            "num_samples": asked,
        }
        return all(content.get(name) == value for name, value in wanted.items())

    def _is_described(self, content: Mapping[str, Any], asked: int | None) -> bool:
        """Whether the lines of a description have the blend's settings."""
        wanted = {
            "Dataset name": self.blend.index_split,
            "Number of samples": str(asked),
            "Sequence length": str(self.blend.sequence_length),
            "Random seed": str(self.blend.seed),
        }
        if self.blend.split is not None:  # otherwise the line holds a value that the program did not use
            wanted["Split"] = self.blend.split
        return all(content.get(name) == value for name, value in wanted.items())

    def _fits(self, content: Mapping[str, Any], check: Callable[[Mapping[str, Any], int | None], bool]) -> bool:
        """Whether a description of a blend names all datasets of this one."""
        parts, asked = content["datasets"], self.blend.requested()
        return len(parts) == len(asked) and all(
            prefix_of(part) in self._names(component) and check(part, number)
            for component, (part, number) in enumerate(zip(parts, asked, strict=True))
        )

    def _names(self, component: int) -> tuple[str, ...]:
        """How a description may name a prefix: as in the run, or by its place today."""
        place = self.places[component]
        return tuple(dict.fromkeys((self.blend.prefixes[component], str(place), str(place.resolve()))))

    def _naming(self, component: int, folder: Path, kind: str, parse: Callable[[str, str], Parsed]) -> list[Described]:
        """The descriptions of a kind in a folder that name a prefix first."""
        if (folder, kind) not in self._read:
            found: dict[str, list[Described]] = {}
            for path, content in self.descriptions(folder, kind, parse):
                found.setdefault(prefix_of(content["datasets"][0]), []).append((path, content))
            self._read[folder, kind] = found
        by_prefix = self._read[folder, kind]
        return [content for name in self._names(component) for content in by_prefix.get(name, ())]

    def descriptions(self, folder: Path, kind: str, parse: Callable[[str, str], Parsed]) -> Iterator[Described]:
        """The descriptions of a kind in a folder, with their content."""
        for path in _globbed(folder, "*.dsc" if parse is parse_lines else f"*-{kind}-*description.txt"):
            try:
                content = parse(read_text(path), kind)
            except (OSError, ValueError, RecursionError) as error:
                self.unread[path] = f"{path}: cannot be read ({error}); expected the description of an index cache"
                continue
            if content is not None:
                yield path, content


def find_cache(blend: MegatronBlend, folder: Path | None, places: Sequence[Path]) -> FoundCache:
    """The cached indices that the programs of a blend's lineage would use for it.

    Args:
        blend: the blend of the run.
        folder: `--data-cache-path`, None where the run had none.
        places: where the prefixes are today; a description may name the old or the new place of a prefix.
    """
    search, lineage = _Search(blend, folder, places), blend.lineage.base
    found: list[CachedIndex] = []
    if lineage.startswith(_CORE):
        found += search.core()
    if lineage in _DESCRIBED:
        found += search.described()
    if lineage in _NAMED:
        taken = {index.component for index in found}
        found += [index for index in search.named() if index.component not in taken]
    return FoundCache(tuple(found), tuple(search.unread.values()))


@dataclass(frozen=True, slots=True)
class DescribedBlend:
    """A blend as the cache of megatron-core describes it.

    Attributes:
        path: the description.
        prefixes: of the data paths.
        requested: samples that each dataset must give.
        weights: one for each data path, summing to 1; None if the description lacks them.
    """

    path: Path
    prefixes: tuple[str, ...]
    requested: tuple[int | None, ...]
    weights: tuple[float, ...] | None


def described_blends(blend: MegatronBlend, folder: Path | None) -> list[DescribedBlend]:
    """The blends in a cache of megatron-core that have a blend's seed, sequence length and split, whatever their data.

    Args:
        blend: the blend of the run.
        folder: `--data-cache-path`, None where the run had none.
    """
    found = []
    search = _Search(blend, folder, ())
    for path, content in search.descriptions(folder, "BlendedDataset", parse_json) if folder is not None else ():
        parts = content["datasets"]
        if all(search.is_dataset(each, each.get("num_samples")) for each in parts):
            weights = content["weights"] if isinstance(content["weights"], list) else []
            numbers = len(weights) == len(parts) and all(isinstance(each, int | float) for each in weights)
            found.append(
                DescribedBlend(
                    path=path,
                    prefixes=tuple(prefix_of(each) for each in parts),
                    requested=tuple(each.get("num_samples") for each in parts),
                    weights=tuple(map(float, weights)) if numbers else None,
                )
            )
    return found


def _globbed(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except (OSError, ValueError):
        return []  # not the name of a folder


def _newest(
    paths: Iterable[Path],
    component: int | None,
    files: Callable[[Path], dict[str, Path]],
    epochs: Callable[[Path], int | None] = lambda _: None,
) -> Iterator[CachedIndex]:
    """The cached index that was written last, as for two tokenizers."""

    def written(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except OSError:
            return 0.0

    for path in sorted(paths, key=written)[-1:]:
        yield CachedIndex(path, component, files(path), epochs(path))


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() and len(text) < 20 else None


def _core_files(names: Iterable[str]) -> Callable[[Path], dict[str, Path]]:
    return lambda path: {
        name: path.with_name(path.name.replace("description.txt", f"{name}_index.npy")) for name in names
    }


def _described_files(path: Path) -> dict[str, Path]:
    return {name: path.with_name(f"{path.stem}_{short}.npy") for name, short in _SHORT.items()}


def _named_files(path: Path) -> dict[str, Path]:
    stem = path.name.removesuffix(f"{_SHORT['document']}.npy")
    return {name: path.with_name(f"{stem}{short}.npy") for name, short in _SHORT.items()}

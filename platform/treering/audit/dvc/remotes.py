"""DVC's remotes that are no folders (HTTP, S3, SSH, …), opened by DVC itself with the plugin that it has for them.

Only lists of tracked folders and manifests are read from them; of everything else only whether it is there.

They are asked only for what is nowhere else: first the tracked folders that `dvc.lock` and `.dvc` files of any commit
name, then, if the remote can be listed (not by HTTP), all others. A remote without its plugin or an answer is named
with the reason. HTTP and S3 are tested with real servers; SSH and the others are not.
"""

import contextlib
import shlex
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from treering.audit.dvc.stores import files_of_tree
from treering.errors import StoreError
from treering.redact import redact

_TREE = ".dir"


@dataclass(frozen=True, slots=True)
class RemoteStore:
    """A remote that DVC opened.

    Attributes:
        remote: its name.
        path: its URL, without a password.
        database: DVC's object database on it (`dvc_data.hashfile.db.HashFileDB`).
    """

    remote: str
    path: str
    database: Any

    @property
    def name(self) -> str:
        """For people."""
        return f"DVC's remote {self.remote}"

    def read(self, md5: str) -> bytes | None:
        """A small file of that md5, None if it is not there.

        Raises:
            StoreError: the remote does not answer.
        """
        with self._answering():
            try:
                content: bytes = self.database.fs.cat_file(self.database.oid_to_path(md5))
            except FileNotFoundError as error:
                from treering.objects import NO_BUCKET  # noqa: PLC0415  (DVC has what it needs)

                if NO_BUCKET in str(error):
                    raise StoreError(
                        f"{self.remote} ({self.path}): its bucket does not exist; make it, or correct the URL by "
                        f"`dvc remote modify {shlex.quote(self.remote)} url URL`"
                    ) from None
                return None
            return content

    def holds(self, md5: str) -> bool:
        """Whether a file of that md5 is there.

        Raises:
            StoreError: the remote does not answer.
        """
        with self._answering():
            try:
                self.database.fs.info(self.database.oid_to_path(md5))  # `exists` would begin to download it by HTTP
            except FileNotFoundError:
                return False
            return True

    def bring(self, md5: str, target: str) -> str:
        """The command that copies a file of that md5 to a place, both for a shell."""
        return f"dvc get-url {shlex.quote(f'remote://{self.remote}/files/md5/{md5[:2]}/{md5[2:]}')} {target}"

    def fetch(self, md5: str, target: Path) -> None:
        """Copies a file of that md5 to a place.

        Raises:
            StoreError: the remote does not answer.
        """
        with self._answering():
            self.database.fs.get_file(self.database.oid_to_path(md5), str(target))

    def trees(self, known: Iterable[str]) -> Iterator[tuple[str, dict[str, str]]]:
        """Tracked folders of the given md5s, as far as they are there, as `Store.trees`.

        Raises:
            StoreError: the remote does not answer.
        """
        for md5 in sorted(known):
            content = self.read(md5)
            entries = None if content is None else files_of_tree(content)
            if entries is not None:
                yield md5, entries

    def other_trees(self, known: Set[str]) -> Iterator[tuple[str, dict[str, str]]]:
        """All other tracked folders, by listing the remote; none where it cannot be listed, as by HTTP.

        Raises:
            StoreError: the remote does not answer.
        """
        if not self.database.fs.CAN_TRAVERSE:
            return
        with self._answering():
            listed = {
                f"{Path(path).parent.name}{Path(path).name}" for path in self.database.fs.find(self.database.path)
            }
        yield from self.trees(name for name in listed - known if name.endswith(_TREE))

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except Exception as error:  # each plugin has errors of its own: aiohttp's, botocore's, paramiko's, …
            raise StoreError(f"{self.remote} ({self.path}) does not answer: {redact(str(error))}") from error


def open_remotes(root: Path, remotes: Mapping[str, str]) -> tuple[list[RemoteStore], list[str]]:
    """Opens remotes; nothing is read from them yet.

    Args:
        root: the project's root.
        remotes: their URLs by name.

    Returns:
        The remotes, and in words those that could not be opened, with the reason.
    """
    if not remotes:
        return [], []
    try:
        from dvc.repo import Repo  # noqa: PLC0415  (an extra, and a second to import)
    except ImportError:
        return [], [f"{', '.join(remotes)}: DVC is not installed; `pip install 'treering[pipeline]'` installs it"]
    opened, closed = [], []
    try:
        with Repo(str(root)) as repo:
            for name, url in remotes.items():
                try:
                    opened.append(RemoteStore(name, redact(url), repo.cloud.get_remote_odb(name)))
                except ImportError as error:
                    scheme = url.partition("://")[0]
                    package = "treering[s3]" if scheme == "s3" else f"dvc[{scheme}]"
                    closed.append(f"{name} ({redact(url)}): {error}; `pip install '{package}'` installs what DVC needs")
                except Exception as error:  # noqa: BLE001  (a plugin's own errors; the answer at hand must come)
                    closed.append(f"{name} ({redact(url)}): {redact(str(error))}")
    except Exception as error:  # noqa: BLE001  (DVC's errors have no public root; no git is one of them)
        closed.append(f"{', '.join(remotes)}: DVC does not open {root}: {redact(str(error))}")
    return opened, closed

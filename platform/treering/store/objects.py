"""An object store: a folder, or a bucket of S3, by its URL, behind the few methods that copies of run folders need.

Everything that fsspec has a file system for is taken. The address of an S3 server other than Amazon's, and the keys,
come from the environment: `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, or a profile of AWS.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import fsspec

from treering.errors import StoreError, UserError
from treering.files import write_durably
from treering.redact import redact

STORE_VARIABLE: Final = "TREERING_STORE_URL"

_S3: Final = {"s3", "s3a"}
_S3_OPTIONS: Final = {
    # A server that is down or silent ends a pass soon, since passes are made again; seconds.
    "config_kwargs": {"connect_timeout": 5, "read_timeout": 30, "retries": {"total_max_attempts": 2}},
}


class ObjectStore:
    """Objects by name below a URL.

    Args:
        url: a folder's path, `s3://bucket/prefix`, or another URL of fsspec.

    Raises:
        UserError: the URL names no file system that is installed.
        StoreError: from every method, when the store does not answer or refuses.
    """

    def __init__(self, url: str) -> None:
        self.place = redact(url)
        scheme = urlsplit(url).scheme if "://" in url else "file"
        options = _S3_OPTIONS if scheme in _S3 else {}
        try:
            self._files, self._root = fsspec.url_to_fs(
                url, use_listings_cache=False, skip_instance_cache=True, **options
            )
        except ImportError as error:
            package = "s3fs" if scheme in _S3 else scheme
            raise UserError(
                f"{self.place}: the file system `{scheme}` needs a package that is missing ({error}); "
                f"pip install {package}"
            ) from None
        except Exception as error:  # noqa: BLE001 - each file system of fsspec raises its own
            raise UserError(
                f"{self.place}: no object store ({error}); expected a folder or s3://BUCKET/PREFIX in {STORE_VARIABLE}"
            ) from None
        if scheme in _S3:
            self._files.retries = 1  # s3fs would try five times what botocore has tried
        self._local = scheme in {"file", "local"}
        if scheme in _S3 and not self._root:
            raise UserError(f"{self.place}: names no bucket, expected s3://BUCKET/PREFIX in {STORE_VARIABLE}")

    def get(self, name: str) -> bytes | None:
        """The content of an object, None if there is none."""
        try:
            content: bytes = self._files.cat_file(self._path(name))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:  # noqa: BLE001 - s3fs, botocore and aiohttp raise dozens of kinds
            self._refuse(name, error)
        return content

    def put(self, name: str, content: bytes) -> None:
        """Writes an object, or replaces it: readers see the old content or the new one, whole."""
        try:
            if self._local:
                path = Path(self._path(name))
                path.parent.mkdir(parents=True, exist_ok=True)
                write_durably(path, content)
            else:
                self._files.pipe_file(self._path(name), content)
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(name, error)

    def remove(self, names: Iterable[str]) -> None:
        """Removes objects; those that are not there are none."""
        for name in names:
            try:
                self._files.rm_file(self._path(name))
            except FileNotFoundError:
                continue
            except Exception as error:  # noqa: BLE001 - as above
                self._refuse(name, error)

    def folders(self, name: str = "") -> list[str]:
        """The names that come next after a name and a slash, and have more below them, in order."""
        try:
            found: list[dict[str, Any]] = self._files.ls(self._path(name), detail=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(name, error)
        paths = (each["name"].rstrip("/") for each in found if each["type"] == "directory")
        return sorted(path.rpartition("/")[2] for path in paths)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}" if name else self._root

    def _refuse(self, name: str, error: Exception) -> NoReturn:
        said = redact(" ".join(str(error).split()))[:400] or type(error).__name__
        if isinstance(error, PermissionError) or "credentials" in said.lower():
            helps = "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and the rights of that key"
            if self._local:
                helps = "expected a folder that can be written"
        elif isinstance(error, FileNotFoundError):
            helps = "expected a bucket or folder that exists; make it"
        else:
            server = os.environ.get("AWS_ENDPOINT_URL") if not self._local else None
            helps = f"expected a store that answers{f' at {redact(server)}' if server else ''}; nothing is lost"
        raise StoreError(f"{self.place}: {name or 'the store'}: {said}; {helps}") from None

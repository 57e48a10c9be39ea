"""An object store: a folder, or a bucket of S3, by its URL, behind the few methods that data and copies of runs need.

Everything that fsspec has a file system for is taken. The address of an S3 server other than Amazon's, and the keys,
come from the environment: `AWS_ENDPOINT_URL`, `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, or a profile of AWS.
"""

import errno
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

import fsspec

from treering.errors import EvidenceError, StoreError, TreeringError, UserError
from treering.files import replace_durably, write_durably
from treering.redact import redact

_S3: Final = {"s3", "s3a"}
# A server that is down or silent ends a pass soon, since passes are made again; seconds.
_TIMEOUTS: Final = {"connect_timeout": 5, "read_timeout": 30}
NO_BUCKET: Final = "bucket does not exist"
"""Part of what s3fs says of S3's NoSuchBucket, as a FileNotFoundError."""

_BLOCK: Final = 8 << 20
_SENDERS: Final = 4


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as the store lists it; its content was not read.

    Attributes:
        name: below the store's URL.
        size: bytes.
        state: what the store says of its content: the ETag, or the time of the last change where it gives none. Another
            content has another state; the same content may have another one too (an upload in other parts).
    """

    name: str
    size: int
    state: str


class ObjectStore:
    """Objects by name below a URL.

    Args:
        url: a folder's path, `s3://bucket/prefix`, or another URL of fsspec.
        attempts: how often S3 is asked before an error.

    Raises:
        UserError: the URL names no file system that is installed.
        StoreError: from every method, when the store does not answer or refuses.
    """

    def __init__(self, url: str, attempts: int = 2) -> None:
        self.place = redact(url)
        scheme = urlsplit(url).scheme if "://" in url else "file"
        tries = {"total_max_attempts": attempts}
        options = {"config_kwargs": {**_TIMEOUTS, "retries": tries}} if scheme in _S3 else {}
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
                f"{self.place}: no object store ({error}); expected a folder or s3://BUCKET/PREFIX"
            ) from None
        if scheme in _S3:
            self._files.retries = 1  # s3fs would try five times what botocore has tried
        self._local = scheme in {"file", "local"}
        if scheme in _S3 and not self._root:
            raise UserError(f"{self.place}: names no bucket, expected s3://BUCKET/PREFIX")

    def get(self, name: str) -> bytes | None:
        """The content of an object, None if there is none."""
        try:
            content: bytes = self._files.cat_file(self._path(name))
        except (FileNotFoundError, NotADirectoryError) as error:
            if NO_BUCKET in str(error):
                self._refuse(name, error)
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

    def read(self, name: str, start: int, end: int) -> bytes:
        """The bytes [start, end) of an object."""
        try:
            content: bytes = self._files.cat_file(self._path(name), start=start, end=end)
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(name, error)
        return content

    def size(self, name: str) -> int | None:
        """The size of an object, None if there is none."""
        try:
            return int(self._files.info(self._path(name))["size"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(name, error)

    def upload(self, name: str, parts: Sequence[Callable[[], bytes]]) -> int:
        """Writes a large object in parts, and goes on with those that an interrupted upload has sent.

        Args:
            name: of the object.
            parts: read the parts; all but the last have the same size, at least 5 MiB.

        Returns:
            The bytes that were sent.

        Raises:
            TreeringError: from reading a part.
        """
        if len(parts) < 2:
            content = b"".join(part() for part in parts)
            self.put(name, content)
            return len(content)
        try:
            return self._write(Path(self._path(name)), parts) if self._local else self._upload(name, parts)
        except TreeringError:  # a part is not what was expected
            raise
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(name, error)

    def _write(self, path: Path, parts: Sequence[Callable[[], bytes]]) -> int:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        with temporary.open("wb") as file:
            written = sum(file.write(part()) for part in parts)
        replace_durably(temporary, path)
        return written

    def _upload(self, name: str, parts: Sequence[Callable[[], bytes]]) -> int:
        bucket, key, _ = self._files.split_path(self._path(name))
        place = {"Bucket": bucket, "Key": key}
        begun = self._files.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key).get("Uploads") or []
        known = [each["UploadId"] for each in begun if each["Key"] == key]
        upload = known[0] if known else self._files.call_s3("create_multipart_upload", **place)["UploadId"]
        there = {each["PartNumber"]: each["ETag"].strip('"') for each in self._parts(place, upload)}

        def send(number: int) -> tuple[int, str]:
            content = parts[number - 1]()
            digest = hashlib.md5(content, usedforsecurity=False).hexdigest()
            if there.get(number) == digest:
                return 0, digest
            sent = self._files.call_s3("upload_part", **place, UploadId=upload, PartNumber=number, Body=content)
            return len(content), sent["ETag"]

        with ThreadPoolExecutor(_SENDERS) as pool:
            sent = list(pool.map(send, range(1, len(parts) + 1)))
        tags = [{"PartNumber": number, "ETag": tag} for number, (_, tag) in enumerate(sent, 1)]
        self._files.call_s3("complete_multipart_upload", **place, UploadId=upload, MultipartUpload={"Parts": tags})
        return sum(num_bytes for num_bytes, _ in sent)

    def _parts(self, place: dict[str, str], upload: str) -> Iterator[dict[str, Any]]:
        after = 0
        while True:
            found = self._files.call_s3("list_parts", **place, UploadId=upload, PartNumberMarker=after)
            yield from found.get("Parts") or []
            if not found.get("IsTruncated"):
                return
            after = found["NextPartNumberMarker"]

    def listed(self, pattern: str = "") -> list[StoredObject]:
        """The objects below the URL, by name.

        Args:
            pattern: of the names, such as `**/*.jsonl`; empty for all.
        """
        try:
            look = self._files.glob if pattern else self._files.find
            found: dict[str, dict[str, Any]] = look(self._path(pattern), detail=True)
            if not found and not self._local:
                self._files.ls(self._root.partition("/")[0])  # an error where the bucket does not exist
        except Exception as error:  # noqa: BLE001 - as above
            self._refuse(pattern, error)
        start = len(self._root.rstrip("/")) + 1
        listed = (_as_listed(path[start:], each) for path, each in found.items() if each["type"] == "file")
        return sorted((each for each in listed if not each.name.endswith("/")), key=lambda each: each.name)

    def bring(self, wanted: StoredObject, path: Path, remedy: str) -> str:
        """Copies an object into a file, block by block, and returns the sha256 of what was read.

        Args:
            wanted: as it was listed.
            path: the file.
            remedy: what helps where it was changed since.

        Raises:
            EvidenceError: the object was changed or removed since it was listed.
            OSError: the file cannot be written.
        """
        digest = hashlib.sha256()
        with path.open("wb") as target:
            for block in self._blocks(wanted, remedy):
                digest.update(block)
                target.write(block)
        return f"sha256:{digest.hexdigest()}"

    def _blocks(self, wanted: StoredObject, remedy: str) -> Iterator[bytes]:
        found: StoredObject | None = None
        try:
            with self._files.open(self._path(wanted.name), "rb", block_size=_BLOCK, cache_type="none") as source:
                found = _as_listed(wanted.name, source.details)
                while found == wanted and (block := source.read(_BLOCK)):
                    yield block
        except Exception as error:  # noqa: BLE001 - as above
            expired = isinstance(error, OSError) and error.errno == errno.EBUSY  # s3fs, where the ETag is another one
            if not expired and not isinstance(error, FileNotFoundError):
                self._refuse(wanted.name, error)
            found = None
        if found != wanted:
            here = "other content, or none" if found is None else f"{found.size:,} bytes, {found.state}"
            expected = f"{wanted.size:,} bytes, {wanted.state}"
            raise EvidenceError(
                f"{self.place.rstrip('/')}/{wanted.name}: changed since it was listed: found {here}, expected "
                f"{expected}; {remedy}",
                found=here,
                expected=expected,
                remedy=remedy,
            )

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


def _as_listed(name: str, info: dict[str, Any]) -> StoredObject:
    modified = info.get("LastModified") or info.get("mtime")
    time = f"{modified:%Y-%m-%dT%H:%M:%SZ}" if isinstance(modified, datetime) else str(modified)
    return StoredObject(name, int(info["size"]), str(info.get("ETag") or f"changed at {time}").strip('"'))

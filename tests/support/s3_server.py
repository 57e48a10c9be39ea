"""A real S3 server on this machine: JuiceFS's gateway, which is MinIO's S3 layer, over a folder."""

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from ports import free_port

KEY, SECRET = "treering-key", "SENTINEL-s3-secret"


def program() -> str | None:
    """The gateway, None where it is not installed."""
    return shutil.which("juicefs") or shutil.which("juicefs", path=str(Path(sys.executable).parent))


class S3Server:
    """A server that ends by its process id; what it holds outlives it.

    Args:
        folder: for its data; made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables by which clients find the server."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def start(self) -> None:
        database = f"sqlite3://{self.folder}/meta.db"
        if not self.folder.exists():
            self.folder.mkdir(parents=True)
            data = f"{self.folder}/data/"
            where = ["--storage", "file", "--bucket", data, "--trash-days", "0"]
            subprocess.run([str(program()), "format", *where, database, "store"], check=True, capture_output=True)
        command = [
            str(program()), "gateway", "--multi-buckets", "--no-usage-report", "--no-banner", "--backup-meta", "0",
            "--keep-etag", "--cache-dir", "memory", "--cache-size", "64", "--metrics", "127.0.0.1:0",
            "--log", f"{self.folder}/gateway.log", database, f"127.0.0.1:{self.port}",
        ]  # fmt: skip
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                env={**os.environ, "MINIO_ROOT_USER": KEY, "MINIO_ROOT_PASSWORD": SECRET},
                start_new_session=True,
            )
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"{self.url}/minio/health/live", timeout=2)  # noqa: S310 - our own server
            except urllib.error.HTTPError:
                return  # it answers
            except OSError:
                time.sleep(0.05)
            else:
                return
        raise RuntimeError((self.folder / "server.log").read_text()[-3000:])

    def make_bucket(self, name: str) -> None:
        import s3fs

        options = {"endpoint_url": self.url}
        s3fs.S3FileSystem(key=KEY, secret=SECRET, client_kwargs=options, skip_instance_cache=True).mkdir(name)

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

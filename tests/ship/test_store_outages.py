"""The store is down, slow, full of errors, or cuts connections: nothing is lost, and all of it arrives afterwards."""

import threading
import time

import pytest
from copies import bring, copied_files, pass_over, whole
from faulty_proxy import FaultyProxy

from treering.errors import StoreError
from treering.project import Project
from treering.ship import follow as following
from treering.ship.copy_target import Copies

pytestmark = pytest.mark.slow


@pytest.fixture
def proxy(s3, monkeypatch):
    """The S3 server behind a proxy, which the environment names."""
    proxy = FaultyProxy(s3.port)
    for name, value in (s3.environment | {"AWS_ENDPOINT_URL": proxy.url}).items():
        monkeypatch.setenv(name, value)
    yield proxy
    proxy.close()


@pytest.mark.parametrize("fault", ["down", "500", "cut"])
def test_a_pass_that_fails_says_so_and_the_next_one_brings_all(proxy, tmp_path, write_run, here, fault):
    url = f"s3://bucket/{tmp_path.name}"
    writer = whole(write_run)
    shipper = Copies(url, "tiny").shipper(writer.run)
    proxy.fault = fault
    with pytest.raises(StoreError, match=r"expected a store that answers at http://127\.0\.0\.1"):
        shipper.ship()
    proxy.fault = "none"
    assert shipper.ship().sent == {"file": 9}
    proxy.fault = fault
    with pytest.raises(StoreError, match=r"expected a store that answers at http://127\.0\.0\.1"):
        bring(url, here, writer.run)
    proxy.fault = "none"
    bring(url, here, writer.run)
    assert copied_files(here.run(writer.run.path.name)) == copied_files(writer.run.path)


def test_a_slow_store_gets_all(proxy, tmp_path, write_run, here):
    url = f"s3://bucket/{tmp_path.name}"
    writer = write_run().start().lay(3)
    proxy.fault = "slow"
    pass_over(url, writer.run)
    proxy.fault = "none"
    bring(url, here, writer.run)
    assert copied_files(here.run(writer.run.path.name)) == copied_files(writer.run.path)


def test_a_follower_goes_on_when_the_store_is_back(proxy, tmp_path, write_run, here, monkeypatch):
    url = f"s3://bucket/{tmp_path.name}"
    monkeypatch.setattr(following, "targets", lambda _: [Copies(url, "tiny")])
    writer = write_run().hold().start().lay(2)
    project = Project(tmp_path)
    arrived = threading.Event()
    follower = threading.Thread(
        target=following.follow,
        args=(project,),
        kwargs={"interval_s": 0.05, "grace_s": 0.1, "report": lambda _: arrived.set()},
        daemon=True,
    )
    follower.start()
    assert arrived.wait(60)
    for fault in ("down", "500"):
        proxy.fault = fault
        before = proxy.connections
        writer.lay(5)
        while proxy.connections < before + 3:  # it tries, and the trainer does not wait
            time.sleep(0.05)
        writer.lay(5)
        arrived.clear()
        proxy.fault = "none"
        assert arrived.wait(60)
    writer.end().die()
    follower.join(60)
    assert not follower.is_alive()
    bring(url, here, writer.run)
    there = here.run(writer.run.path.name)
    assert copied_files(there) == copied_files(writer.run.path)
    assert (there / "attempts/0001/rings.jsonl").read_bytes().count(b"\n") == 22

"""The memory that a job may fill: the machine's, or what its control group leaves of it."""

import psutil
import pytest

from treering.collect.memory import count_oom_kills, memory_limit


@pytest.fixture
def lay(tmp_path):
    def write(own, **limits):
        (tmp_path / "own").write_text(own)
        for path, text in limits.items():
            file = tmp_path / path.replace("__", "/")
            file.parent.mkdir(parents=True, exist_ok=True)
            (file.parent / file.name.replace("_max", ".max").replace("memory_limit", "memory.limit")).write_text(text)
        return memory_limit(1000, tmp_path, tmp_path / "own")

    return write


def test_the_smallest_limit_on_the_way_up_counts(lay):
    assert lay("0::/slurm/job\n", slurm__job__memory_max="700\n", slurm__memory_max="400\n") == 400


def test_no_limit_is_the_machine(lay):
    assert lay("0::/\n") == 1000
    assert lay("0::/job\n", job__memory_max="max\n") == 1000
    assert lay("0::/job\n", job__memory_max="9223372036854771712\n") == 1000


def test_version_1_has_a_hierarchy_of_its_own(lay):
    own = "5:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n"
    assert lay(own, memory__a__b__memory_limit_in_bytes="600\n") == 600


def test_where_there_are_no_control_groups(tmp_path):
    assert memory_limit(1000, tmp_path, tmp_path / "none") == 1000


def test_here():
    assert 0 < memory_limit() <= psutil.virtual_memory().total


KILLS = {
    "own": "1:cpu:/elsewhere\n0::/job\n",
    "job/memory.events": "oom 9\noom_kill 2\n",
    "node": "nr 5\noom_kill 31\n",
}


@pytest.mark.parametrize(
    ("left_out", "expected"),
    [((), 2), (("job/memory.events",), 31), (("own",), 31), (tuple(KILLS), None)],
    ids=["the group's", "a group that does not count", "no groups", "no such kernel"],
)
def test_kills_of_the_own_group_come_before_those_of_the_node(left_out, expected, tmp_path):
    (tmp_path / "job").mkdir()
    for name in KILLS.keys() - set(left_out):
        (tmp_path / name).write_text(KILLS[name])
    assert count_oom_kills(tmp_path, tmp_path / "own", tmp_path / "node") == expected


def test_kills_are_counted_here():
    assert count_oom_kills() is not None

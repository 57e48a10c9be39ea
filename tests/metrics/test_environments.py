"""Environments by package, device, driver and variable."""

import pytest

from treering.collect.environment import environment_digest
from treering.metrics.environments import EnvironmentDifference, compare_environments


def environment(**changes):
    found = {
        "python": {"implementation": "CPython", "version": "3.11.2"},
        "packages": {"torch": "2.13.0", "ruff": "0.14.1"},
        "numeric_packages": {"torch": "2.13.0"},
        "system": {"os": "Debian 12", "kernel": "6.1", "host": "a"},
        "devices": [
            {"name": "H100", "driver": "570.1"}, {"name": "H100", "driver": "570.1"}, {"name": "CPU", "driver": None}
        ],
        "device_kinds": ["H100"],
        "variables": {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO"},
    }  # fmt: skip
    found |= changes
    found["digest"] = environment_digest(found)
    return found


def difference(*fields):
    return EnvironmentDifference(*fields)


def test_equal_environments_on_other_hosts_have_no_difference():
    found = compare_environments(environment(), environment(system={"os": "Debian 12", "kernel": "6.1", "host": "b"}))
    assert (found.same_digest, found.differences, found.doubts) == (True, (), ())


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"packages": {"torch": "2.14.0", "ruff": "0.14.1"}, "numeric_packages": {"torch": "2.14.0"}},
            difference("package", "torch", "2.13.0", "2.14.0", True),
        ),
        ({"packages": {"torch": "2.13.0"}}, difference("package", "ruff", "0.14.1", None, False)),
        (
            {"variables": {"NCCL_ALGO": "Tree", "NCCL_DEBUG": "INFO"}},
            difference("variable", "NCCL_ALGO", "Ring", "Tree", True),
        ),
        ({"variables": {"NCCL_ALGO": "Ring"}}, difference("variable", "NCCL_DEBUG", "INFO", None, False)),
        (
            {"python": {"implementation": "CPython", "version": "3.12.1"}},
            difference("python", "python", "CPython 3.11.2", "CPython 3.12.1", True),
        ),
        (
            {"devices": [{"name": "H100", "driver": "580.2"}] * 2 + [{"name": "CPU", "driver": None}]},
            difference("driver", "driver", "570.1", "580.2", False),
        ),
        (
            {"devices": [{"name": "H100", "driver": "570.1"}, {"name": "CPU", "driver": None}]},
            difference("device", "H100", "2", "1", True),
        ),
        (
            {"system": {"os": "Debian 13", "kernel": "6.1"}},
            difference("system", "os", "Debian 12", "Debian 13", False),
        ),
    ],
    ids=lambda value: value.name if isinstance(value, EnvironmentDifference) else "",
)
def test_each_part_is_named_with_its_values(changes, expected):
    found = compare_environments(environment(), environment(**changes))
    assert found.differences == (expected,)
    assert found.doubts == ()


def test_what_can_move_numbers_is_first():
    changed = environment(variables={"NCCL_ALGO": "Tree"}, system={"os": "Debian 13", "kernel": "6.1"})
    assert [each.numeric for each in compare_environments(environment(), changed).differences] == [True, False, False]


def test_a_part_that_a_record_does_not_name_is_a_doubt_and_no_difference():
    old = environment()
    del old["packages"], old["variables"]
    found = compare_environments(old, environment())
    assert found.differences == ()
    assert [doubt.split(" were")[0] for doubt in found.doubts] == ["The packages", "The variables"]


def test_digests_that_differ_without_a_named_part():
    found = compare_environments(environment(), environment() | {"digest": "sha256:other"})
    assert (found.same_digest, found.differences) == (False, ())
    assert "the records do not name what" in found.doubts[0]
    assert compare_environments({}, {}).same_digest is None

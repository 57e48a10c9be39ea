"""Files that somebody else made: regular ones, within bounds, and no YAML that grows."""

import io
import os
import socket

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from treering.config import yaml_file
from treering.config.load import apply_override, read_mapping
from treering.config.yaml_text import _FAST_LOADER, MAX_DEPTH, MAX_VALUES, check_bounds, parse_yaml
from treering.errors import ConfigError
from treering.files import last_lines, open_regular, open_text, read_bytes, read_text


def test_a_pipe_a_socket_a_device_and_a_folder_are_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for place in (tmp_path / "pipe", tmp_path / "socket", tmp_path, "/dev/zero", "/dev/full"):
            with pytest.raises(OSError, match=r"regular file|directory|No such device"):
                open_regular(place)


def test_circles_of_links_and_long_names_are_errors_of_the_system(tmp_path):
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="Too many levels"):
        read_bytes(tmp_path / "a")
    with pytest.raises(OSError, match="File name too long"):
        read_bytes(tmp_path / ("x" * 5000))


def test_a_file_is_read_up_to_its_bound(tmp_path):
    (tmp_path / "x").write_bytes(b"a\r\nb\n")
    assert read_bytes(tmp_path / "x", 5) == b"a\r\nb\n"
    assert read_text(tmp_path / "x") == "a\nb\n"
    with open_text(tmp_path / "x") as file:
        assert list(file) == ["a\r\n", "b\n"]
    with pytest.raises(OSError, match="holds more than 4 bytes"):
        read_bytes(tmp_path / "x", 4)


def test_what_a_shell_opened_is_read():
    reader, writer = os.pipe()
    os.write(writer, b"text")
    os.close(writer)
    try:
        assert read_bytes(f"/dev/fd/{reader}") == b"text"
    finally:
        os.close(reader)


def _bomb(levels):
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{each}: &a{each} [{', '.join([f'*a{each - 1}'] * 9)}]" for each in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_bomb(30), f"more than {MAX_VALUES:,} values"),
        ("[" * 100_000, "nesting depth|levels inside each other"),
        ("- " * (MAX_DEPTH + 1) + "x", f"more than {MAX_DEPTH} levels"),
        ("a: &x [*x]", "contains itself"),
        ("- x\n" * (MAX_VALUES + 1), f"more than {MAX_VALUES:,} values"),
        ("? " * 100_000, "levels|nesting"),
    ],
)
def test_yaml_beyond_its_bounds_is_refused_before_it_is_built(text, said, tmp_path, monkeypatch):
    events, parse = [], yaml.parse

    def counted(*arguments, **options):
        for event in parse(*arguments, **options):
            events.append(event)
            yield event

    monkeypatch.setattr(yaml, "parse", counted)
    for loader in {_FAST_LOADER, yaml_file._FastLoader}:
        monkeypatch.setattr(loader, "get_single_node", lambda _loader: pytest.fail("it was composed"))
    with pytest.raises(yaml.YAMLError, match=said):
        check_bounds(text)
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(ConfigError, match=said):
        read_mapping(tmp_path / "x.yaml", "an experiment")
    assert len(events) <= 2 * (MAX_VALUES + 3), "what stands behind the bound is not read"


def test_aliases_within_the_bounds_are_values():
    assert parse_yaml(_bomb(3))["a2"] == [[["x", "x"]] * 9] * 9
    check_bounds("- x\n" * (MAX_VALUES - 1))
    check_bounds("- " * MAX_DEPTH + "x")


def test_an_override_has_the_same_bounds():
    with pytest.raises(ConfigError, match="expected a YAML value"):
        apply_override({}, f"a={'[' * 100}")


@given(st.lists(st.integers(0, 40_000), max_size=6), st.integers(0, 9), st.integers(0, 20_000))
def test_the_last_lines_are_those_of_the_whole_file(lengths, count, torn):
    lines = [b"x" * length for length in lengths]
    file = io.BytesIO(b"".join(line + b"\n" for line in lines) + b"t" * torn)
    assert last_lines(file, count) == (lines[max(0, len(lines) - count) :], b"t" * torn)


def test_no_more_than_the_limit_is_read_from_the_end():
    assert last_lines(io.BytesIO(b"a\n" + b"x" * 100_000), 1, 1000) == ([], b"x" * 1000)
    assert last_lines(io.BytesIO(b"x" * 100_000 + b"\nrest"), 1, 1000) == ([b"x" * 995], b"rest")

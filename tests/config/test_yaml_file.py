"""A YAML file that is not a config, or not a regular file, is an error with its line."""

import os
from pathlib import Path

import pytest
from tiny_experiment import config_error, write_experiment

from treering.config.load import load_experiment


def test_a_key_that_stands_twice(tmp_path):
    file = write_experiment(tmp_path)
    file.write_text(file.read_text() + "seed: 8\n")
    error = config_error(file)
    assert (error.found, error.line) == ("key 'seed' occurs twice", len(file.read_text().splitlines()))


def test_a_nested_key_that_stands_twice(tmp_path):
    file = tmp_path / "twice.yaml"
    file.write_text("model:\n  num_layers: 2\n  num_layers: 3\n")
    error = config_error(file)
    assert (error.found, error.line, error.column) == ("key 'num_layers' occurs twice", 3, 3)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("- a\n- b\n", "a list instead of keys and values"),
        ("", "an empty file"),
        ("# nothing\n", "an empty file"),
        ("text", "a single value"),
        ("a: [1\n", "not valid YAML"),
        ("a: 1\n---\nb: 2\n", "not valid YAML: expected a single document"),
        ("a:\n\t- 1\n", "not valid YAML"),
        ("a: \0", "not valid YAML"),
        ("!!python/object:os.x {}", "a value of YAML type python/object:os.x"),
    ],
)
def test_files_that_are_no_experiment(tmp_path, text, found):
    file = tmp_path / "other.yaml"
    file.write_text(text)
    assert found in config_error(file).found


def test_no_such_file(tmp_path):
    assert config_error(tmp_path / "none.yaml").found == "no such file"


def test_a_file_that_is_no_text(tmp_path):
    file = tmp_path / "binary.yaml"
    file.write_bytes(b"\xff\xfe\x00")
    assert "unreadable" in config_error(file).found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("seed: 2024-13-45", "a value of YAML type timestamp"),
        ("seed: 2024-01-01", "a value of YAML type timestamp"),
        ("seed: !!binary aGVsbG8=", "a value of YAML type binary"),
        ("seed: !!set {a, b}", "a value of YAML type set"),
        ("seed: !local 3", "a value of YAML type !local"),
        ("? [a, b]\n: 1", "a list or a mapping as a key"),
        ("1: 2", "'1' as a key"),
        ("null: 2", "'null' as a key"),
        ("a: " + "[" * 70 + "]" * 70, "not valid YAML: more than 64 levels inside each other"),
        ("a: [" + "1, " * 30_000 + "]", "not valid YAML: more than 20,000 values, each as often as aliases repeat it"),
        ("a: &a [*a]", "not valid YAML: *a contains itself"),
        ("seed: " + "9" * 5000, "a number of 5000 characters"),
        ("seed: 99999999999999999999", "a number of 20 characters"),
        ("seed: !!python/object/apply:os.getcwd []", "a value of YAML type python/object/apply:os.getcwd"),
        ("seed: !!int x", "not valid YAML: 'x' is not a value of type int"),
        ("seed: !!bool maybe", "not valid YAML: 'maybe' is not a value of type bool"),
        ("seed: 1\nmodel: {}\nseed: 2", "key 'seed' occurs twice"),
        ("a0: &a0 [x, x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 9)),
         "not valid YAML: more than 20,000 values, each as often as aliases repeat it"),
    ],
)  # fmt: skip
def test_yaml_that_is_no_config(tmp_path, text, found):
    file = tmp_path / "tiny.yaml"
    file.write_text(text)
    error = config_error(file)
    assert found in [each.found for each in getattr(error, "errors", (error,))]
    assert error.line is not None


def test_files_that_are_no_files(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    assert "is a pipe, expected a regular file" in config_error(tmp_path / "pipe.yaml").found
    (tmp_path / "folder.yaml").mkdir()
    assert config_error(tmp_path / "folder.yaml").found == "a folder"
    assert "is a device, expected a regular file" in config_error(Path("/dev/zero")).found
    (tmp_path / "large.yaml").write_text("# " + "x" * (4 << 20))
    assert "holds more than 4 MiB" in config_error(tmp_path / "large.yaml").found
    assert "unreadable" in config_error(tmp_path / ("x" * 5000)).found
    assert "unreadable" in config_error(tmp_path / "nul\0.yaml").found


def test_a_byte_order_mark_is_no_error(tmp_path):
    file = write_experiment(tmp_path)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert load_experiment(file).seed == 7


def test_bytes_that_are_no_text_have_their_line(tmp_path):
    file = tmp_path / "latin.yaml"
    file.write_bytes(b"experiment: tiny\ndescription: caf\xe9\n")
    assert config_error(file).line == 2


def test_yaml_merges_may_override(tmp_path):
    file = write_experiment(tmp_path)
    document = file.read_text().replace("parallel:\n", "parallel:\n  <<: {micro_batch_size: 4, pipeline: 2}\n")
    file.write_text(document)
    parallel = load_experiment(file).parallel
    assert (parallel.micro_batch_size, parallel.pipeline, parallel.data) == (2, 2, 2)

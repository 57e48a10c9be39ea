"""A hostfile: what it may hold, and the command over it."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from treering.errors import UserError
from treering.launch.hostfile import (
    Host,
    check_program,
    command,
    meeting_address,
    parse_hostfile,
    shared_variables,
)
from treering.launch.start import Start

START = Start(
    Path("/shared/project"), Path("demo.yaml"), Path("/shared/project/runs/0123"), "8x1x2", "/py", ("--no-publish",)
)
TEXT = "# two DGX\n\ndgx001 slots=8\n  dgx002   slots=8\n"
HOSTS = (Host("dgx001", 8), Host("dgx002", 8))


def test_hosts_in_the_order_of_their_ranks():
    assert parse_hostfile(TEXT, "hosts") == HOSTS
    assert parse_hostfile("localhost slots=2", "hosts") == (Host("localhost", 2),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "hosts: found no host, expected a line like `dgx001 slots=8` for each"),
        ("# none\n", "found no host"),
        ("dgx001 slots=8\ndgx002\n", "hosts: line 2: found 'dgx002', expected a line like"),
        ("dgx001 slots=8 max=9", "line 1: found 'dgx001 slots=8 max=9'"),
        ("user@dgx001 slots=8", "line 1: found 'user@dgx001 slots=8'"),
        ("dgx001 slots=0", "line 1: found dgx001 with 0 slots"),
        ("dgx001 slots=8\n\ndgx001 slots=8\n", "line 3: found dgx001 twice"),
        ("dgx001 slots=8\ndgx002 slots=4\n", "line 2: found dgx002 with 4 slots, expected 8 as dgx001 has"),
        ("localhost slots=8\ndgx002 slots=8\n", "found localhost among 2 hosts"),
    ],
)
def test_what_is_no_hostfile(text, message):
    with pytest.raises(UserError, match=re.escape(message)):
        parse_hostfile(text, "hosts")


def test_the_command_over_several_hosts():
    assert command(START, HOSTS, Path("/kept"), "pdsh", None) == [
        "/py", "-m", "deepspeed.launcher.runner", "--hostfile=/kept", "--launcher=pdsh", "--master_addr=dgx001",
        "--master_port=29500", "--no_local_rank", "--module", "treering_trainer.launch", "demo.yaml", "--no-publish",
    ]  # fmt: skip
    assert "--master_addr=10.0.0.7" in command(START, HOSTS, Path("/kept"), "openmpi", "10.0.0.7")


def test_arguments_pass_a_shell_of_the_other_host():
    """DeepSpeed wraps a word with blanks in double quotes, pdsh joins the words, the other host's shell reads them."""
    arguments = ('--set=blend.components.0.weight="0.5"', "--set=a={b: 1}", "--set=c=*;$HOME", '--set=d=a "b" c')
    begin = replace(START, arguments=arguments)
    words = command(begin, HOSTS, Path("/kept"), "pdsh", None)[-4:]
    wrapped = ['"{}"'.format(word.replace('"', '\\"')) if " " in word else word for word in words]
    printed = subprocess.run(
        ["bash", "-c", "printf '%s\\n' " + " ".join(wrapped)], capture_output=True, text=True, check=True
    ).stdout
    assert printed.splitlines() == list(arguments)
    assert command(begin, HOSTS, Path("/kept"), "openmpi", None)[-4:] == list(arguments)
    with pytest.raises(UserError, match=r"argument .* put the value into the experiment's file"):
        command(replace(START, arguments=("--set=a=$b c",)), HOSTS, Path("/kept"), "pdsh", None)


def test_this_machine_needs_no_ssh():
    here = (Host("localhost", 2),)
    words = command(START, here, Path("/kept"), "pdsh", None)
    assert "--no_ssh_check" in words
    assert "--master_addr=127.0.0.1" in words
    assert meeting_address(here) == "127.0.0.1"


def test_every_host_gets_the_same_variables():
    environ = {"NCCL_ALGO": "Ring", "CUDA_VISIBLE_DEVICES": "0", "HOME": "/root", "SECRET": "x"}
    assert shared_variables(environ, Path("/kept"), "dgx001") == {
        "NCCL_ALGO": "Ring",
        "OMP_NUM_THREADS": "1",
        "TREERING_LAUNCH_SCRIPT": "/kept",
        "MASTER_ADDR": "dgx001",
        "MASTER_PORT": "29500",
    }
    assert shared_variables({"OMP_NUM_THREADS": "4"}, Path("/kept"), "dgx001")["OMP_NUM_THREADS"] == "4"


@pytest.mark.parametrize("value", ['a"b', "a$b", "a\nb", "a\\b", "a`b"])
def test_a_value_that_a_shell_would_change_is_refused(value):
    with pytest.raises(UserError, match=r"variable NCCL_ALGO: found .* does not reach other hosts whole"):
        shared_variables({"NCCL_ALGO": value}, Path("/kept"), "dgx001")


def test_a_missing_program_is_named_before_anything_starts(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    python = sys.executable
    check_program(python, HOSTS[:1], "pdsh")
    with pytest.raises(UserError, match="--python: found no program nowhere/python"):
        check_program("nowhere/python", HOSTS[:1], "pdsh")
    with pytest.raises(UserError, match=r"--launcher pdsh: found no pdsh in PATH, .* `--launcher openmpi`"):
        check_program(python, HOSTS, "pdsh")
    with pytest.raises(UserError, match=r"--launcher openmpi: found no ompi_info in PATH, .* `--launcher pdsh`"):
        check_program(python, HOSTS, "openmpi")
    (tmp_path / "pdsh").write_text("#!/bin/sh\n")
    (tmp_path / "pdsh").chmod(0o755)
    check_program(python, HOSTS, "pdsh")

"""The command group: each command is imported when it is called, and no earlier."""

import subprocess
import sys

from treering.cli.group import NAMES


def test_every_module_of_a_command_is_in_a_group_of_the_help():
    from pathlib import Path

    import treering.cli.commands

    modules = {path.stem for path in Path(treering.cli.commands.__file__).parent.glob("*.py")} - {"__init__"}
    assert sorted(name.replace("-", "_") for name in NAMES) == sorted(modules)


def test_a_command_imports_no_other_command(tmp_path):
    code = (
        "import sys; from treering.cli import main; sys.argv = ['treering', 'runs']\n"
        "try:\n    main()\n"
        "finally:\n    print(*sorted(name for name in sys.modules if name.startswith('treering.cli.commands.')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] == "treering.cli.commands.runs"

"""Runs `treering` commands as a shell would, each in a process of its own, without importing the trainer each time.

One JSON request a line on standard input, `{"words", "cwd", "log", "environ"}`; its exit code on standard output. A
command that becomes a trainer's process by `exec` runs that module in the same process.
"""

import json
import os
import runpy
import sys
import traceback
import warnings

warnings.filterwarnings("ignore")
os.environ["DS_ACCELERATOR"] = "cpu"

# Sets OMP_NUM_THREADS, so it comes before everything that brings torch.
from treering_trainer.launch import __main__, worker  # noqa: E402, F401, I001
from treering_trainer.evaluate import run  # noqa: E402, F401
from treering.cli import main  # noqa: E402


def become(_interpreter, arguments):
    """What `os.execv` of `python -m MODULE …` does."""
    module = arguments[arguments.index("-m") + 1]
    sys.argv = [module, *arguments[arguments.index("-m") + 2 :]]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.exit(0)


def serve(request):
    """The command, in this process."""
    os.chdir(request["cwd"])
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(request["environ"])
    sys.argv = ["treering", *request["words"]]
    os.execv = become
    main()


for line in sys.stdin:
    pid = os.fork()
    if not pid:
        code = 1
        try:
            serve(json.loads(line))
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:  # noqa: BLE001 - the last frame of the process
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)

"""Imports the trainer once and forks a launcher for each request: many trainings in seconds.

One JSON request a line on standard input, one JSON answer a line on standard output:
    {"start": {"cwd", "arguments", "log", "environ", "ignored", "faults", "code_root", "sweep"}}
        -> {"pid"}
    {"wait": pid} -> {"code"} (minus the signal, if one killed it)
"""

import ctypes
import json
import os
import resource
import signal
import sys
import time
import warnings
from pathlib import Path

warnings.filterwarnings("ignore")
os.environ["DS_ACCELERATOR"] = "cpu"

# Sets OMP_NUM_THREADS, so it comes before everything that brings torch.
from treering_trainer.launch import __main__ as launch  # noqa: E402, I001
from deepspeed.runtime.pipe.engine import PipelineEngine  # noqa: E402
from deepspeed.runtime.pipe.schedule import ForwardPass  # noqa: E402
import torch  # noqa: E402
from treering.collect.environment import environment_digest  # noqa: E402
from treering.config.canonical import digest_bytes  # noqa: E402
from treering.config.schedule import Schedule  # noqa: E402
from treering.runlog.writer import RingWriter  # noqa: E402
from treering_trainer.checkpointing import checkpoint, cleanup, publish, relayout, resume  # noqa: E402, F401
from treering_trainer.core import batch_reader, engine, loop, optim, universal  # noqa: E402
from treering_trainer.monitor import heartbeat  # noqa: E402
from treering_trainer.launch import nodes, prepare, start, sweep, worker  # noqa: E402, F401

sys.path.append(str(Path(__file__).parents[1] / "support"))
from signal_states import started_with  # noqa: E402


def kill_group():
    os.killpg(0, signal.SIGKILL)


def kill_after_ring(step):
    append = RingWriter.append

    def patched(self, **values):
        ring = append(self, **values)
        if ring.step == step:
            kill_group()
        return ring

    RingWriter.append = patched


def kill_in_save(step):
    """Dies when half of the files are digested."""
    digest_file = checkpoint.digest_file
    seen = []

    def patched(path):
        seen.append(path)
        if f"step-{step:08d}" in str(path) and sum(f"step-{step:08d}" in str(p) for p in seen) == 4:
            kill_group()
        return digest_file(path)

    checkpoint.digest_file = patched


def slow_digest(seconds, after=0):
    """Syncing and digesting takes long for the first file of each checkpoint after a step."""
    record_file = checkpoint.record_file

    def patched(path, folder):
        step = int(folder.name.rpartition("-")[2])
        if step > after and "mp_rank" in path.name:
            time.sleep(seconds)
        return record_file(path, folder)

    checkpoint.record_file = patched


def fail_digest(rank, step):
    """A disk cannot read back what one rank has written for one checkpoint."""
    record_file = checkpoint.record_file

    def patched(path, folder):
        if folder.name.endswith(f"step-{step:08d}") and int(os.environ["RANK"]) == rank:
            raise OSError(5, "Input/output error")
        return record_file(path, folder)

    checkpoint.record_file = patched


def kill_in_removal():
    """An old checkpoint has lost its name and half of its files."""
    rmtree = cleanup.shutil.rmtree

    def patched(path, **options):
        if ".removing-" in str(path):
            next(Path(path).rglob("layer_*.pt")).unlink()
            kill_group()
        return rmtree(path, **options)

    cleanup.shutil.rmtree = patched


def kill_in_conversion():
    """The converter is done, its files have neither manifest nor name."""
    relayout.seal = lambda *_: kill_group()


def slow_conversion(seconds):
    """Workers of the converter need long for their first file."""
    universal.ds_to_universal.dump_param_fragment = lambda *_: time.sleep(seconds)


def limit_conversion():
    """The system refuses to let the converter write large files."""
    make = relayout._make

    def patched(*arguments):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16384, limits[1]))
        try:
            return make(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    relayout._make = patched


def limit_files(rank, step):
    """The system refuses to let one rank write large files during one save."""
    save = loop.Loop._save

    def patched(self, number):
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        if number == step and int(os.environ["RANK"]) == rank:
            resource.setrlimit(resource.RLIMIT_FSIZE, (16384, limits[1]))
        try:
            save(self, number)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    loop.Loop._save = patched


def signal_rank(rank, step, number, moment, part="READ"):
    """A signal hits one rank when it begins a part of a step; the file `moment` says when."""
    beat = heartbeat.HeartbeatWriter.__call__

    def patched(self, begun, of=0):
        beat(self, begun, of)
        if of == step and begun is heartbeat.Part[part] and int(os.environ["RANK"]) == rank:
            Path(moment).write_text(str(time.monotonic()))
            os.kill(os.getpid(), number)

    heartbeat.HeartbeatWriter.__call__ = patched


def sleep(rank, step):
    """One rank begins to train a step and never goes on."""
    train = engine.Engine.train

    def patched(self, number, *arguments):
        if number == step and int(os.environ["RANK"]) == rank:
            time.sleep(3600)
        return train(self, number, *arguments)

    engine.Engine.train = patched


def slow(seconds, rank=None):
    take = loop.Loop._step

    def patched(self, number):
        if rank is None or int(os.environ["RANK"]) == rank:
            time.sleep(seconds)
        return take(self, number)

    loop.Loop._step = patched


def slow_stage(rank, seconds):
    """Every forward pass of one rank takes longer."""
    run = PipelineEngine._INSTRUCTION_MAP[ForwardPass]

    def patched(self, **arguments):
        if self.global_rank == rank:
            time.sleep(seconds)
        return run(self, **arguments)

    PipelineEngine._INSTRUCTION_MAP[ForwardPass] = patched


def feed_another(rank):
    """One rank is fed other tokens than its batch holds."""
    read = batch_reader.BatchReader.read

    def patched(self, lo, hi):
        shift = 1 if int(os.environ["RANK"]) == rank and lo > 0 else 0
        return read(self, lo + shift, hi + shift)

    batch_reader.BatchReader.read = patched


def full_disk(step, reason=True):
    """No ring can be appended any more; with `reason` false, no reason file can be written either."""
    if not reason:
        start.reason_file = lambda attempt, rank: attempt / "full" / f"{rank}"
    append = RingWriter.append

    def patched(self, **values):
        if values["step"] == step:
            raise OSError(28, "No space left on device")
        return append(self, **values)

    RingWriter.append = patched


def kill_before_end():
    """All ranks are done, nothing says so yet."""
    start.write_end = lambda *_: kill_group()


def kill_in_publish(before):
    """Dies before the published folder gets its name, or before metrics are written."""
    if before == "metrics":
        publish.write_metrics = lambda *_: kill_group()
    else:
        publish.extract_run = lambda _run, _final, target: (target.mkdir(), kill_group())


def leave_out_scripts():
    """Checkpoints without the scripts that DeepSpeed copies beside its files."""
    PipelineEngine._copy_recovery_script = lambda *_: None


def kill_past_checks():
    """What should have been refused must not begin: such a model would take the machine with it."""
    start._hold = lambda *_: kill_group()


def another_node(host, disk=None):
    """This rank has another host name, and with `disk` another disk where the others share a folder."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_mounts, new_names, recursive, private = 0x20000, 0x4000000, 0x4000, 0x40000
    calls = [(libc.unshare, new_names), (libc.sethostname, host.encode(), len(host))]
    if disk is not None:
        calls += [
            (libc.unshare, new_mounts),
            (libc.mount, b"none", b"/", None, recursive | private, None),
            (libc.mount, b"tmpfs", disk.encode(), b"tmpfs", 0, None),
        ]
    for call, *arguments in calls:
        if call(*arguments):
            raise OSError(ctypes.get_errno(), f"{call.__name__} was refused")


def install(folder):
    """Packages of this folder are installed."""
    sys.path.append(folder)


def compute_in_fp16():
    """This processor takes itself for one with fp16 instructions; torch computes the same without, only slower."""
    torch.ops.mkldnn._is_mkldnn_fp16_supported = lambda: True


def secret_rate(step):
    """Somebody trains one step at twice the rate that the ring will say."""
    train = engine.Engine.train

    def patched(self, number, micro_batches, global_batch_size, learning_rate):
        return train(self, number, micro_batches, global_batch_size, learning_rate * (1 + (number == step)))

    engine.Engine.train = patched


def another_schedule(rate=1, skip=0):
    """Learning rates are multiplied, or samples are skipped, and the rings say so."""
    step_rate, sample_range = Schedule.step_learning_rate, Schedule.sample_range
    Schedule.step_learning_rate = lambda self, step: step_rate(self, step) * rate
    Schedule.sample_range = lambda self, step: tuple(sample + skip for sample in sample_range(self, step))


def record_code_by_an_earlier_rule():
    """The attempt's header is as earlier versions wrote it: the code's digest is of bytes, and names no rule."""
    collect = prepare.collect_code

    def patched(root):
        code = collect(root)
        del code["rule"]
        return {**code, "digest": digest_bytes(b"all bytes"), "sources": {"trainer": digest_bytes(b"bytes")}}

    prepare.collect_code = patched


def run_optimizer_of(root):
    """The functions of the optimizer's module are those of another tree, as if that tree were installed."""
    other = dict(vars(optim))
    exec(compile((Path(root) / "trainer/treering_trainer/core/optim.py").read_text(), "optim", "exec"), other)  # noqa: S102
    optim.build_optimizer.__code__ = other["build_optimizer"].__code__


def record_package(name, version):
    """The attempt's header names another version of a package that computes."""
    collect = prepare.collect_environment

    def patched(devices):
        found = collect(devices)
        for part in ("packages", "numeric_packages"):
            found[part] = {**found[part], name: version}
        return {**found, "digest": environment_digest(found)}

    prepare.collect_environment = patched


def lose_random_state():
    """The masks of dropout are not those of the step."""
    seed = engine.Engine._seed_dropout
    engine.Engine._seed_dropout = lambda self, step: seed(self, step + 1000)


FAULTS = {
    fault.__name__: fault
    for fault in (
        kill_after_ring,
        kill_in_save,
        slow_digest,
        fail_digest,
        kill_in_removal,
        kill_in_conversion,
        slow_conversion,
        limit_conversion,
        limit_files,
        signal_rank,
        sleep,
        slow,
        slow_stage,
        feed_another,
        full_disk,
        kill_before_end,
        install,
        compute_in_fp16,
        kill_in_publish,
        secret_rate,
        another_schedule,
        another_node,
        kill_past_checks,
        leave_out_scripts,
        record_code_by_an_earlier_rule,
        run_optimizer_of,
        record_package,
        lose_random_state,
    )
}


def start_training(request):
    pid = os.fork()
    if pid:
        while os.getpgid(pid) != pid:  # a test may kill the group at once
            time.sleep(0.001)
        return pid
    code = 1
    try:
        os.setsid()
        started_with(*request["ignored"])
        os.chdir(request["cwd"])
        log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(request["environ"])
        for name, arguments in request["faults"].items():
            FAULTS[name](**arguments)
        if request["code_root"]:
            prepare.CODE_ROOT = Path(request["code_root"])
        code = (sweep if request["sweep"] else launch).main(request["arguments"])
    finally:
        os._exit(code)


def main():
    for line in sys.stdin:
        request = json.loads(line)
        if "start" in request:
            answer = {"pid": start_training(request["start"])}
        else:
            answer = {"code": os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()

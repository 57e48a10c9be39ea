"""The command of a DVC stage that trains without a model: true rings, batch digests, checkpoints and headers.

    python stage_trainer.py CONFIG [--resume-from-out] [--die-after STEP] [--rewrite FILE]

Without options it works as the trainer does: state in `runs/<id>`, resumed if the recipe is the same, published at the
end. With `--resume-from-out` it works as a script does that keeps its state in its DVC out and resumes from whatever it
finds there.
"""

import argparse
import shutil
from pathlib import Path

import run_records

from treering.config.canonical import digest_file
from treering.config.load import load_experiment
from treering.config.resolve import resolve
from treering.config.resolved_blend import ResolvedBlend
from treering.data.corpus.corpus import Corpus
from treering.data.order.batch import batch_digest, read_samples, sample_digests
from treering.data.order.treering1 import DataOrder
from treering.project import Project
from treering.runlog.directory import RunDirectory, checkpoint_name
from treering.runlog.records import FileRecord
from treering.runlog.ring import Ring
from treering.runlog.writer import RingWriter

EVERY = 6


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("--resume-from-out", action="store_true")
    parser.add_argument("--die-after", type=int)
    parser.add_argument("--rewrite", type=Path)
    options = parser.parse_args()
    project = Project(Path.cwd())
    blend = ResolvedBlend.read(project.blend)
    resolved = resolve(load_experiment(options.config), blend, str(options.config), runs=project.runs)
    run = RunDirectory(project.published if options.resume_from_out else project.run(resolved.run_id))
    done = run.checkpoints()[-1] if (run.path / "resolved.json").exists() and run.checkpoints() else None
    last = resolved.schedule.num_steps
    print(f"{last - (done.step if done else 0)} steps to do")
    if done is None or done.step < last:
        run.path.mkdir(parents=True, exist_ok=True)
        resolved.write(run.path / "resolved.json")
        train(project, run, done, options)
    if not options.resume_from_out:
        shutil.rmtree(project.published, ignore_errors=True)
        shutil.copytree(run.path, project.published)
        for checkpoint in RunDirectory(project.published).checkpoints()[:-1]:
            shutil.rmtree(checkpoint.path)


def train(project, run, done, options):
    resolved = run.resolved
    corpora = [Corpus.open(project.corpus(component.corpus)) for component in resolved.blend.components]
    order, number = DataOrder(resolved.blend), len(run.attempts()) + 1
    folder = run.path / "attempts" / f"{number:04d}"
    folder.mkdir(parents=True)
    parent = None if done is None else run_records.parent(done)
    digest = run_records.header(resolved, number, parent=parent).write(folder / "header.json")
    with RingWriter(folder / "rings.jsonl", Ring, digest) as writer:
        for step in range(1 if done is None else done.step + 1, resolved.schedule.num_steps + 1):
            lo, hi = resolved.schedule.sample_range(step)
            fields = {
                "consumed_samples": resolved.consumed_samples(step),
                "consumed_tokens": resolved.consumed_tokens(step),
                "learning_rate": resolved.schedule.step_learning_rate(step),
                "batch_digest": batch_digest(sample_digests(read_samples(order, corpora, lo, hi))),
            }
            ring = writer.append(**run_records.ring_values(step, (lo, hi), order.sequence_length, **fields))
            if step % EVERY == 0 or step == resolved.schedule.num_steps:
                cut(run, number, ring)
            if step == options.die_after:
                raise SystemExit("died")
            if step == EVERY and options.rewrite:
                raw = options.rewrite.read_bytes()
                options.rewrite.write_bytes(raw[:100] + bytes([raw[100] ^ 1]) + raw[101:])


def cut(run, attempt, ring):
    folder = run.path / "checkpoints" / checkpoint_name(ring.step)
    folder.mkdir(parents=True)
    weights = folder / "weights.bin"
    weights.write_text(ring.digest)
    files = (FileRecord(path="weights.bin", size=weights.stat().st_size, digest=digest_file(weights)),)
    run_records.manifest(run.resolved, attempt, ring, files=files).write(folder / "manifest.json")


if __name__ == "__main__":
    main()

"""Which rank computes longest, from telemetry that may be torn."""

import json

from treering.metrics.ranks import RankSpeed, rank_speeds
from treering.runlog.attempt import AttemptDirectory


def line(rank, compute_s, **values):
    values |= {"rank/step": 2.0, "rank/compute": compute_s, "rank/communication": 2.0 - compute_s, "rank/tflops": 4.0}
    return json.dumps({"time": 1.0, "rank": rank, "values": values})


def test_the_rank_that_computes_longest_is_first(tmp_path):
    folder = tmp_path / "0001/telemetry"
    folder.mkdir(parents=True)
    idle = json.dumps({"time": 1.0, "rank": 9, "values": {"host/memory_used": 1}})
    texts = {
        0: [line(0, 1.0), "{torn", line(0, 1.2), line(0, 9.0), "[]"],
        1: [line(1, 1.5), line(1, 1.5), idle],
        9: [idle],
    }
    for rank, lines in texts.items():
        (folder / f"rank-{rank}.jsonl").write_text("\n".join(lines) + '\n{"time":')
    assert rank_speeds(AttemptDirectory(folder.parent)) == [
        RankSpeed(1, 2.0, 1.5, 0.5, 4.0),
        RankSpeed(0, 2.0, 1.2, 0.8, 4.0),
    ]


def test_of_a_long_file_the_newest_part_is_read(tmp_path):
    folder = tmp_path / "0001/telemetry"
    folder.mkdir(parents=True)
    (folder / "rank-0.jsonl").write_text("".join(line(0, 1.0) + "\n" for _ in range(2000)))
    with (folder / "rank-0.jsonl").open("a") as file:
        file.writelines(line(0, 1.5) + "\n" for _ in range(1000))
    assert rank_speeds(AttemptDirectory(folder.parent))[0].compute_s == 1.5


def test_every_rank_of_2240_is_read_in_order_of_numbers(tmp_path):
    folder = tmp_path / "0001/telemetry"
    folder.mkdir(parents=True)
    for rank in range(2240):
        (folder / f"rank-{rank}.jsonl").write_text(line(rank, 1.9 if rank == 2239 else 1.0) + "\n")
    (folder / "rank-x.jsonl").write_text("{}\n")
    attempt = AttemptDirectory(folder.parent)
    speeds = rank_speeds(attempt)
    assert [speed.rank for speed in speeds] == [2239, *range(2239)]


def test_a_reading_that_is_no_number_is_left_out(tmp_path):
    folder = tmp_path / "0001/telemetry"
    folder.mkdir(parents=True)
    bad = json.dumps({"time": 1.0, "rank": 0, "values": {"rank/step": None, "rank/compute": "x"}})
    (folder / "rank-0.jsonl").write_text(f"{bad}\n{line(0, 1.0)}\n")
    assert rank_speeds(AttemptDirectory(folder.parent)) == [RankSpeed(0, 2.0, 1.0, 1.0, 4.0)]

"""The words of launch scripts, held against the shell itself where the shell can run them."""

import subprocess
from pathlib import Path

import pytest

from treering.audit.megatron.script import read_script
from treering.audit.megatron.shell import Unresolved, commands_of
from treering.errors import UserError

PLAIN = r"""#!/bin/bash
# a comment with 'a quote and "another
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS=8; NODES=4
WORLD=$(($GPUS * ${NODES}))
BOOKS="/data/a b/books"
STEPS=$(( 300 * 1000 * 2 / (${WORLD} + 1) % 1000 ))
cat <<EOT > config.json
{ "train_batch_size": $GPUS, if then "seed": 7 }
EOT
BLEND="0.3 /data/wiki"
BLEND+=" 0.7 /data/code"
ARGS=(
    --num-layers 12   # behind a word
    --seq-length 2048 \
    --note "two words" 'and $GPUS more'
)
ARGS+=(--seed 5)
MORE="
    --data-path $BLEND \
    --split 949,50,1
"
run() { echo not this one; }
torchrun --nproc_per_node $GPUS pretrain_gpt.py "${ARGS[@]}" $MORE --global-batch-size=$WORLD \
    --train-iters $STEPS --books "$BOOKS" --tail\ end x"y z"'w' ${ARGS[@]} --empty "" 2> log.txt | tee out.txt
"""


def test_the_words_are_those_of_the_shell(tmp_path: Path) -> None:
    (tmp_path / "torchrun").write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done >words\n')
    (tmp_path / "torchrun").chmod(0o755)
    text = PLAIN.replace("--empty", '$ARGS --empty "${ARGS[*]}"')
    (tmp_path / "run.sh").write_text(text)
    subprocess.run(["bash", "run.sh"], cwd=tmp_path, env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, check=True, timeout=300)
    true = (tmp_path / "words").read_text().split("\0")[:-1]
    (command,) = [each for each in commands_of(text) if each.words[0] == "torchrun"]
    assert list(command.words[1:]) == true
    assert command.depth == 0


def test_the_arguments_are_those_that_argparse_holds(tmp_path: Path) -> None:
    script = read_script(tmp_path / "run.sh", PLAIN)
    wanted = {
        "num_layers": 12, "seq_length": 2048, "seed": 5, "data_path": ["0.3", "/data/wiki", "0.7", "/data/code"],
        "split": "949,50,1", "global_batch_size": 32, "train_iters": 181, "books": "/data/a b/books", "empty": "",
    }  # fmt: skip
    assert {name: script.arguments[name] for name in wanted} == wanted
    assert script.unseen == ()


NEEDS_A_SHELL = r"""
SEQ=${SEQ:-2048}
N=2
if [ -n "$DEBUG" ]; then LR=1; else LR=2; fi
[ -z "$Q" ] && SIZE=8
for SEED in 1 2; do echo $SEED; done
((N = N * 2))
BEFORE=3
source env.sh
AFTER=$(nproc)
python pretrain_gpt.py $EXTRA --seq-length $SEQ --lr $LR --global-batch-size $SIZE --seed $SEED --train-iters $N \
    --eval-iters $BEFORE --micro-batch-size `date` --data-path /d/$USER/wiki --save "$AFTER" --fp16 on $MORE_ARGS
"""


def test_what_needs_a_shell_is_named_with_its_line_and_never_guessed(tmp_path: Path) -> None:
    script = read_script(tmp_path / "run.sh", NEEDS_A_SHELL)
    reasons = {
        "seq_length": "${SEQ:-2048} (line 2: the shell or its arguments decide it)",
        "lr": "$LR (line 4: LR is assigned in a condition, a loop or a function)",
        "global_batch_size": "$SIZE (line 5: SIZE is assigned in a condition, a loop or a function)",
        "seed": "$SEED (line 6: `for SEED in 1 2` assigns it)",
        "train_iters": "$N (line 7: `(( N = N * 2` assigns it)",
        "eval_iters": "$BEFORE (line 9: `source env.sh` may assign it)",
        "micro_batch_size": "`date` (line 12: a command decides it)",
        "data_path": "/d/$USER/wiki (line 12: the script does not assign USER)",
        "save": "$(nproc) (line 10: a command decides it)",
    }
    assert {name: repr(script.arguments[name]) for name in reasons} == reasons
    assert [(each.text, each.reason) for each in script.unseen] == [
        ("$EXTRA", "the script does not assign EXTRA"),
        ("$MORE_ARGS", "the script does not assign MORE_ARGS"),
    ]


def test_a_value_that_is_unknown_in_part_keeps_its_other_words() -> None:
    text = 'A="--seed 5 --data-path $1 --split 9,1"\npython p.py $A --note "$A"\n'
    (command,) = list(commands_of(text))
    assert [str(word) for word in command.words[2:7]] == [
        "--seed",
        "5",
        "--data-path",
        str(command.words[5]),
        "--split",
    ]
    assert command.words[5] == Unresolved("$1", 1, "the shell or its arguments decide it")
    assert isinstance(command.words[-1], Unresolved)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo hello\n", r"found no launch of a training program of Megatron"),
        ("python a.py --seq-length 8\npython b.py --seq-length 8\n", r"found 2 launches \(lines 1, 2\)"),
        ("for i in 1 2; do\n python a.py --seq-length 8\ndone\n", "line 2: the launch is in a condition, a loop"),
        ("f() {\n python a.py --seq-length 8\n}\nf\n", "line 2: the launch is in a condition, a loop"),
        ("python ./deepy.py train.py -d configs 20B.yml local.yml\n", r"launches GPT-NeoX with 20B\.yml local\.yml"),
        ("A=xxxxxxxxxx\n" + "A=$A$A$A$A$A$A$A$A\n" * 20, r"its names expand to more than 1,000,000 words"),
    ],
)
def test_what_is_no_single_plain_launch_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=rf"run\.sh: .*{message}"):
        read_script(Path("run.sh"), text)


def test_a_command_that_is_handed_on_as_one_word_is_read() -> None:
    text = (
        'CMD="pretrain_gpt.py --seq-length 8 --data-path x"\nsrun bash -c "torchrun --node_rank \\$ID $CMD --seed 3"\n'
    )
    script = read_script(Path("run.sh"), text)
    assert script.arguments == {"seed": 3, "seq_length": 8, "data_path": ["x"]}


@pytest.mark.parametrize(
    "text", ["'", '"', "$", "${", "$(", "`", "a=(", "<<", "<<E\n", "((", "\\", "a() {", "case x in a)", "\0"]
)
def test_a_script_that_ends_early_is_no_error_of_ours(text: str) -> None:
    for whole in (text, f"python a.py --seq-length 8 {text}", f"{text}\npython a.py --seq-length 8\n"):
        try:
            read_script(Path("run.sh"), whole)
        except UserError:
            continue

"""A training loop of plain PyTorch that Treering records.

Run `python experiments/plain_pytorch.py`, kill it, and run it again: it goes on after its newest checkpoint. Then
`treering audit RUN` compares what both attempts were fed.
"""

from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import treering

STEPS = 30
BATCH_SIZE = 4
EVERY_STEPS = 5
LEARNING_RATE = 0.1


def batches(first: int) -> Iterator[Tensor]:
    """The batches from a number on: token ids of shape [4, 17]. In place of your data loader."""
    for number in range(first, STEPS):
        yield torch.randint(64, (BATCH_SIZE, 17), generator=torch.Generator().manual_seed(number))


def main() -> None:
    """Trains from the newest checkpoint on, or from the beginning."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Embedding(64, 16), nn.Linear(16, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)  # it has no state that a checkpoint must hold
    run = treering.start("plain-pytorch", config={"batch_size": BATCH_SIZE, "learning_rate": LEARNING_RATE})
    if run.last_checkpoint:
        model.load_state_dict(load_file(run.last_checkpoint / "model.safetensors"))
    for tokens in batches(run.last_step):
        loss = nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss=loss, learning_rate=LEARNING_RATE, tokens=tokens)
        if run.last_step % EVERY_STEPS == 0:
            folder = Path(f"ckpt/step-{run.last_step}")
            folder.mkdir(parents=True, exist_ok=True)
            save_file(model.state_dict(), folder / "model.safetensors")
            run.checkpoint(folder)
    run.finish()


if __name__ == "__main__":
    main()

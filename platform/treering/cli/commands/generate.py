"""`treering generate`: a checkpoint continues a text, in the trainer's own process."""

import os
import sys
from typing import Annotated

import typer

from treering.cli.options import JsonOption, NamedCheckpoint, TokenizerOption

PromptOption = Annotated[
    str | None, typer.Option("--prompt", metavar="TEXT", help="What to continue; default: the beginning of a document.")
]
PromptFileOption = Annotated[
    str | None, typer.Option("--prompt-file", metavar="FILE", help="A file to continue; - is standard input.")
]
MaxTokensOption = Annotated[int, typer.Option("--max-tokens", help="Most tokens of a sample.")]
TemperatureOption = Annotated[float, typer.Option("--temperature", help="0 takes the most probable token.")]
TopKOption = Annotated[int | None, typer.Option("--top-k", help="Draw among the k most probable tokens.")]
TopPOption = Annotated[float, typer.Option("--top-p", help="Draw among the most probable ones that reach this.")]
SeedOption = Annotated[int, typer.Option("--seed", help="Of the first sample; the next ones count on.")]
NumSamplesOption = Annotated[int, typer.Option("--num-samples", help="How many samples.")]
StopOption = Annotated[
    list[str] | None, typer.Option("--stop", metavar="TEXT", help="A text that ends a sample; repeatable.")
]
StreamOption = Annotated[
    bool | None, typer.Option("--stream/--no-stream", help="Print text as it comes; default: on a terminal.")
]


def generate(  # noqa: PLR0917 - one argument an option
    checkpoint: NamedCheckpoint,
    prompt: PromptOption = None,
    prompt_file: PromptFileOption = None,
    max_tokens: MaxTokensOption = 128,
    temperature: TemperatureOption = 1.0,
    top_k: TopKOption = None,
    top_p: TopPOption = 1.0,
    seed: SeedOption = 0,
    num_samples: NumSamplesOption = 1,
    stop: StopOption = None,
    tokenizer: TokenizerOption = None,
    stream: StreamOption = None,
    json: JsonOption = False,
) -> None:
    """Continue a text with a checkpoint's model; the same seed gives the same text.

    Prints what was generated, without the prompt; notes go to standard error. On a GPU where there is one.

    Example: `treering generate published --prompt "In the beginning"`
    """
    arguments = [sys.executable, "-m", "treering_trainer.generate"]
    arguments += [f"--prompt={prompt}"] if prompt is not None else []
    arguments += [f"--prompt-file={prompt_file}"] if prompt_file is not None else []
    arguments += [f"--max-tokens={max_tokens}", f"--temperature={temperature}", f"--top-p={top_p}"]
    arguments += [f"--top-k={top_k}"] if top_k is not None else []
    arguments += [f"--seed={seed}", f"--num-samples={num_samples}"]
    arguments += [f"--stop={text}" for text in stop or ()]
    arguments += [f"--tokenizer={tokenizer}"] if tokenizer is not None else []
    arguments += ["--stream" if stream else "--no-stream"] if stream is not None else []
    arguments += ["--json"] if json else []
    os.execv(sys.executable, [*arguments, "--", checkpoint])  # noqa: S606 - becomes the trainer, never imported here

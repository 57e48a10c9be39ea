"""`treering generate`: becomes the trainer, which continues a text with a checkpoint."""

from typing import Annotated

import typer

from treering.cli.options import JsonOption, NamedCheckpoint, TokenizerOption
from treering.cli.trainer import become_trainer

PromptOption = Annotated[
    str | None,
    typer.Option(
        "--prompt", metavar="TEXT", help="The text to continue; default: none, as at the beginning of a document."
    ),
]
PromptFileOption = Annotated[
    str | None,
    typer.Option("--prompt-file", metavar="FILE", help="The file with the text to continue; - is standard input."),
]
MaxTokensOption = Annotated[
    int, typer.Option("--max-tokens", metavar="N", help="Generate at most N tokens for each sample.")
]
TemperatureOption = Annotated[
    float, typer.Option("--temperature", metavar="T", help="Divide the logits by T; 0 takes the most probable token.")
]
TopKOption = Annotated[int | None, typer.Option("--top-k", metavar="K", help="Draw from the K most probable tokens.")]
TopPOption = Annotated[
    float,
    typer.Option("--top-p", metavar="P", help="Draw from the most probable tokens that together reach probability P."),
]
SeedOption = Annotated[
    int, typer.Option("--seed", metavar="N", help="The seed of the first sample; each next sample has the next number.")
]
NumSamplesOption = Annotated[int, typer.Option("--num-samples", metavar="N", help="Generate N samples.")]
StopOption = Annotated[
    list[str] | None, typer.Option("--stop", metavar="TEXT", help="End a sample at this text; repeatable.")
]
StreamOption = Annotated[
    bool | None, typer.Option("--stream/--no-stream", help="Print each token at once; default: only on a terminal.")
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
    """Continue a text with the model of a checkpoint; the same seed gives the same text.

    The command prints the generated text without the prompt. Notes go to standard error. It uses a GPU if the machine
    has one.

    Exit codes:
        3: the checkpoint does not hold
        5: the text cannot be generated

    Examples:
        treering generate published --prompt "In the beginning"
        treering generate published --prompt-file prompt.txt --num-samples 3 --seed 7
    """
    options = {
        "--prompt": prompt,
        "--prompt-file": prompt_file,
        "--max-tokens": max_tokens,
        "--temperature": temperature,
        "--top-k": top_k,
        "--top-p": top_p,
        "--seed": seed,
        "--num-samples": num_samples,
        "--stop": stop,
        "--tokenizer": tokenizer,
        "--stream": stream,
        "--no-stream": stream is False,
        "--json": json,
    }
    become_trainer("generate", options, checkpoint)

"""Continues text with a checkpoint's model, in one process: token by token, drawn from a seed.

Reads a checkpoint after checking its digests, and the run's tokenizer; prints the text and writes no files.

- A prompt is encoded as the corpora were. Without one the sample begins after the token that ends a document.
- `--temperature 0` takes the most probable token; else the logits are divided by it, then `--top-k`, then `--top-p`
  leave tokens out. Rows of the padded vocabulary are never drawn.
- A sample is its seed, drawn on the processor for any device.
- A sample ends with its document, before a `--stop` text, or after `--max-tokens`; `--json` says which, and gives the
  tokens. Bytes of an incomplete character are left out of the text.
- Keys and values of earlier tokens are kept, so a token costs one position. The model has learned its positions one by
  one: beyond its sequence tokens are left out on the left, the others move, and each token costs a whole sequence.
"""

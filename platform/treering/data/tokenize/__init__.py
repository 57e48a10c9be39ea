"""Stage `tokenize`: the tokenizer, then every curated document as tokens, by shards of about 256 MB of text."""

"""English prose that passes the filters of curation."""

import random

SUBJECTS = ["The river", "A trader", "The old engine", "Her brother", "The parliament", "A young doctor", "The harbour"]
VERBS = ["carried", "described", "repaired", "forgot", "measured", "defended", "painted", "counted", "crossed"]
OBJECTS = [
    "the northern bridge",
    "a letter of credit",
    "every wooden boat",
    "the winter harvest",
    "that strange machine",
]
ENDS = [
    "before the rain came",
    "with great patience",
    "for the sake of peace",
    "when the market closed",
    "and said nothing",
]


def make_text(seed: int, sentences: int = 12) -> str:
    """English prose that no other seed repeats, over the filter's thresholds, with a word that ends what it began."""
    generator = random.Random(seed)
    name = "".join(generator.choice(letters) for letters in ("BDFGKLMNPRST", "aeiou", "lmnrst", "aeiou"))
    name += "".join(generator.choice("abcdefghiklmnoprstu") for _ in range(5))
    lines = [f"The town of {name} was built by the people of {name[::-1]}, and that is known to all of {name}."]
    for _ in range(sentences):
        number = generator.randrange(1200, 1999)
        lines.append(
            f"{generator.choice(SUBJECTS)} of {name} {generator.choice(VERBS)} {generator.choice(OBJECTS)} in {number}"
            f" {generator.choice(ENDS)}, to the joy of {''.join(generator.sample('abcdefgimnoprst', 7))} {name}."
        )
    return " ".join(lines)

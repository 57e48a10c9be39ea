import pytest

from treering.config.duration import parse_duration
from treering.errors import UserError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("84600", 84600), ("23h30m", 84600), ("90m", 5400), ("1d2h", 93600), ("1d1h1m1s", 90061), ("30s", 30)],
)
def test_seconds_of_a_span(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0h", "h", "-5", "1.5h", "30m1h", "1h 30m", "1h1h", "soon", "٣m"])
def test_what_is_no_span(text):
    with pytest.raises(UserError, match="is not a span of time; expected seconds"):
        parse_duration(text)

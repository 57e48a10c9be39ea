"""Where our canonical JSON is not RFC 8785: run ids depend on each of these texts."""

import pytest

from treering.config.canonical import canonical_json, said_otherwise


@pytest.mark.parametrize(
    ("value", "ours", "rfc_8785"),
    [
        (1.0, "1.0", "1"),
        (1e-5, "1e-05", "0.00001"),
        (1e16, "1e+16", "10000000000000000"),
        ({"\ue000": 1, "\U0001f600": 2}, '{"\ue000":1,"\U0001f600":2}', '{"\U0001f600":2,"\ue000":1}'),
        (2**53 + 1, "9007199254740993", "9007199254740992"),
        (float("inf"), '"Infinity"', None),
    ],
)
def test_what_differs_from_rfc_8785(value, ours, rfc_8785):
    assert canonical_json(value) == ours != rfc_8785


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": [True, None], "a": 0.5}, '{"a":0.5,"b":[true,null]}'),
        ('\x0f\n"\\/é\u2028\x7f', '"\\u000f\\n\\"\\\\/é\u2028\x7f"'),
        (1e21, "1e+21"),
    ],
)
def test_what_is_as_in_rfc_8785(value, text):
    assert canonical_json(value) == text


@pytest.mark.parametrize(
    ("found", "said", "expected"),
    [
        ({"a": {"x": 1.0, "y": "z"}}, {"a": {"x": 1, "y": "z"}}, []),
        ({"a": {"x": 1.0, "y": None}, "b": 2}, {"a": {"x": 1.0, "y": None}}, []),
        ({"a": {"x": 1, "y": 2.0}}, {"a": {"x": True, "y": 2.0}}, [("a.x", 1, True)]),
        ({"a": {"x": False}}, {"a": {"x": 0}}, [("a.x", False, 0)]),
        ({"a": {"x": 0.5, "y": 1.0}}, {"a": {"x": 0.5, "y": 1.5}}, [("a.y", 1.0, 1.5)]),
        ({"a": {"x": [1, 2]}}, {"a": {"x": [1, True]}}, [("a.x.1", 2, True)]),
    ],
)
def test_what_a_record_says_otherwise_is_named_by_its_path(found, said, expected):
    assert list(said_otherwise(found, said)) == expected

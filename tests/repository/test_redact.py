"""A secret never reaches a message: every way in which URIs, settings and errors spell one."""

import pytest

from treering.redact import redact, without_user_info

HARMLESS = [
    "sqlite:////srv/mlflow.db",
    "http://127.0.0.1:5000/#/experiments/3?workflowType=machine_learning",
    "write to team@example.org about http://host/page?author=a@b",
    'FATAL: password authentication failed for user "mlflow"',
    "tokens=512, num_tokens: 5, token_ids=[1, 2]",
    "ssh://git@host/repository",
    "s3://bucket/folder",
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{" + "x" * 500_000, "{" + "x" * 500_000),
        ("a://b:" * 100_000, "a://b:" * 100_000),
        ("password=" + ":" * 500_000 + "x", "password=***"),
        ("?token=" + ":" * 500_000 + "x", "?token=***"),
    ],
    ids=["word", "schemes", "assignment", "parameter"],
)
def test_time_grows_no_faster_than_a_text(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_stays(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("postgresql://mlflow:SENTINEL@db:5432/runs", "postgresql://mlflow:***@db:5432/runs"),
        (
            "postgresql+psycopg://u:SENTINEL%40x@db/runs?sslmode=require",
            "postgresql+psycopg://u:***@db/runs?sslmode=require",
        ),
        ("mysql://u:SENTINEL:more@db/runs", "mysql://u:***@db/runs"),
        ("mysql://u:SENTINEL/more@db/runs", "mysql://u:***@db/runs"),
        ("postgresql://u:SENTINEL@@db/runs", "postgresql://u:***@db/runs"),
        ("postgresql://:SENTINEL@db/runs", "postgresql://:***@db/runs"),
        ("https://SENTINEL@github.com/a/b.git", "https://***@github.com/a/b.git"),
        ("(https://u:SENTINEL@host/x), again 'http://u:SENTINEL@h'", "(https://u:***@host/x), again 'http://u:***@h'"),
        ("postgresql://db/runs?user=u&password=SENTINEL&x=1", "postgresql://db/runs?user=u&password=***&x=1"),
        ("postgresql://db/runs?sslpassword=SENTINEL", "postgresql://db/runs?sslpassword=***"),
        ("https://host/x?access_token=SENTINEL#top", "https://host/x?access_token=***#top"),
        ("https://account.blob/x?sv=1&sig=1&api_key=SENTINEL", "https://account.blob/x?sv=1&sig=1&api_key=***"),
        (
            "https://host/x?access_token=SENTINEL: connection refused",
            "https://host/x?access_token=***: connection refused",
        ),
        ("(see https://host/x?token=SENT.IN:EL).", "(see https://host/x?token=***)."),
        ("db?password=SENTINEL: refused", "db?password=***: refused"),
        ("host=db password=SENTINEL: refused", "host=db password=***: refused"),
        ("host=db password=SENTINEL dbname=runs", "host=db password=*** dbname=runs"),
        ("host=db password='SENTINEL with blanks'", "host=db password='***'"),
        ("{'password': 'SENTINEL', 'port': 1}", "{'password': '***', 'port': 1}"),
        ("export AWS_SECRET_ACCESS_KEY=SENTINEL", "export AWS_SECRET_ACCESS_KEY=***"),
    ],
)
def test_every_spelling_of_a_secret_is_hidden(text: str, expected: str) -> None:
    assert redact(text) == expected
    assert redact(expected) == expected, "twice is as good as once"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MLFLOW_TRACKING_URI", "postgresql://u:SENT%40INEL@db/runs"),
        ("MLFLOW_TRACKING_URI", "http://u:SENT@INEL@host"),
        ("TREERING_DATABASE_URL", "mysql://u:SENT%40INEL@db"),
        ("MLFLOW_TRACKING_PASSWORD", "SENT@INEL"),
        ("MLFLOW_TRACKING_TOKEN", "SENT@INEL"),
        ("AWS_SECRET_ACCESS_KEY", "SENT@INEL"),
    ],
)
def test_the_environments_own_secrets_are_hidden_wherever_they_occur(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    assert redact("said SENT@INEL and SENT%40INEL to db") == "said *** and *** to db"


def test_a_short_secret_does_not_hide_its_letters_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "postgresql://u:a@db/runs")
    assert redact("a run at postgresql://u:a@db/runs") == "a run at postgresql://u:***@db/runs"


def test_a_link_has_no_user_information() -> None:
    assert without_user_info("https://u:SENTINEL@host:5000/x") == "https://host:5000/x"
    assert without_user_info("http://127.0.0.1:5000") == "http://127.0.0.1:5000"

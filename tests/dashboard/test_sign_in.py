"""The dashboard for others: nobody is served without a sign-in, and only people on the project's list are let in.

The identity provider speaks OpenID Connect over HTTP on 127.0.0.1; server and Chromium are real.
"""

import re
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import oidc_provider_mock
import pytest

from treering.cli.access import Access, access
from treering.errors import ConfigError, UserError
from treering.project import Project
from treering_dashboard.picture import CHROMIUM_NAMES, chromium, find_chromium, free_port
from treering_dashboard.site.sign_in import is_allowed

CHROMIUM = find_chromium()
URL = "https://runs.example.org"
EVERY = "0.0.0.0"  # noqa: S104 - the address that others reach
AUTH = """[auth]
redirect_uri = "{url}/oauth2callback"
cookie_secret = "{secret}"
client_id = "treering"
client_secret = "any"
server_metadata_url = "{provider}/.well-known/openid-configuration"
"""


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path)


@pytest.fixture
def sign_in_by(project):
    """Writes the section of the identity provider and the list of people."""

    def write(url=URL, provider="https://id.example.org", allowed=("ann@example.org",), **change):
        (project.root / ".streamlit").mkdir()
        text = AUTH.format(url=url, secret="s" * 32, provider=provider)
        for name, value in change.items():
            text = re.sub(rf'{name} = ".*"', f'{name} = "{value}"', text)
        (project.root / ".streamlit" / "secrets.toml").write_text(text)
        project.settings.write_text(f"dashboard: {{allowed: {list(allowed)}}}\n")

    return write


@pytest.mark.parametrize(
    ("address", "allowed", "let_in"),
    [
        ("ann@example.org", ("ann@example.org",), True),
        ("Ann@Example.org", ("ann@example.org",), True),
        ("bob@example.org", ("ann@example.org",), False),
        ("bob@example.org", ("*@example.org",), True),
        ("bob@evil.example.org", ("*@example.org",), False),
        ("bob@example.org.evil", ("*@example.org",), False),
        ("", ("*@example.org",), False),
        ("@example.org", ("*@example.org",), False),
        ("*@example.org", ("*",), False),
    ],
)
def test_who_is_on_the_list(address, allowed, let_in):
    assert is_allowed(address, allowed) is let_in


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_this_machine_alone_needs_no_sign_in(project, host):
    found = access(project, host, None, insecure=False)
    assert found == Access(found.address)
    assert found.is_local


@pytest.mark.parametrize(
    ("host", "public_url", "message"),
    [
        (EVERY, None, r"--host: found 0\.0\.0\.0, every address .* expected --public-url"),
        (EVERY, URL, r"could reach the dashboard of runs\.example\.org.*--insecure"),
        ("127.0.0.1", URL, r"secrets\.toml names no identity provider"),
        ("no.such.name.invalid", None, r"--host: found 'no\.such\.name\.invalid', expected a name or address"),
        ("127.0.0.1", "runs.example.org", r"--public-url: found 'runs\.example\.org', expected https://NAME"),
        ("127.0.0.1", "https://runs.example.org/a", r"--public-url: .* without a path"),
    ],
)  # fmt: skip
def test_others_are_not_served_without_a_sign_in(project, host, public_url, message):
    with pytest.raises(UserError, match=message):
        access(project, host, public_url, insecure=False)


def test_insecure_is_said_and_noted(project):
    found = access(project, EVERY, "http://runs.example.org:8501", insecure=True)
    assert found.hosts == ("localhost", "127.0.0.1", "runs.example.org")
    assert "nobody signs in: everyone who reaches runs.example.org" in found.notes[0]
    assert "without TLS" in found.notes[1]
    assert not found.is_local


def test_with_a_provider_and_a_list_it_is_served(project, sign_in_by):
    sign_in_by(allowed=("ann@example.org", "*@lab.example.org"))
    found = access(project, "127.0.0.1", URL, insecure=False)
    assert found.notes == ("people sign in; let in: ann@example.org, *@lab.example.org (treering.yaml)",)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"client_id": ""}, r"secrets\.toml: auth\.client_id"),
        ({"cookie_secret": ""}, r"secrets\.toml: auth\.cookie_secret"),
        ({"url": "https://other.example.org"}, r"auth\.redirect_uri.*https://runs\.example\.org/oauth2callback"),
        ({"allowed": ()}, r"treering\.yaml: dashboard\.allowed: found nobody"),
    ],
)
def test_a_sign_in_that_is_not_whole_is_named_by_its_field(project, sign_in_by, changes, message):
    sign_in_by(**changes)
    with pytest.raises(ConfigError, match=message):
        access(project, "127.0.0.1", URL, insecure=False)


@contextmanager
def served(project, port, *arguments):
    command = [sys.executable, "-m", "treering", "up", "--json", "--port", str(port), "--mlflow-port", str(free_port())]
    process = subprocess.Popen([*command, *arguments], cwd=project.root, stdout=subprocess.PIPE, text=True)
    try:
        assert "dashboard" in "".join(iter(process.stdout.readline, "}\n"))
        yield
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason=f"no Chromium on PATH (looked for {', '.join(CHROMIUM_NAMES)})")
def test_people_sign_in_and_only_those_on_the_list_see_a_page(project, sign_in_by):
    port = free_port()
    url = f"http://localhost:{port}"
    people = [
        oidc_provider_mock.User(sub="ann", claims={"email": "ann@example.org", "email_verified": True}),
        oidc_provider_mock.User(sub="bob", claims={"email": "bob@example.org", "email_verified": True}),
        oidc_provider_mock.User(sub="eve", claims={"email": "ann@example.org", "email_verified": False}),
    ]
    with oidc_provider_mock.run_server_in_thread(user_claims=people) as provider:
        sign_in_by(url=url, provider=f"http://127.0.0.1:{provider.server_port}")
        with served(project, port, "--public-url", url), chromium(CHROMIUM) as browser:
            for name, expected in (
                (
                    "bob",
                    "You signed in as bob@example.org. Whoever serves the dashboard can add it to",
                ),
                ("eve", "You signed in as ann@example.org, an address that is not verified"),
                ("ann", "No run"),
            ):
                page = browser.new_context().new_page()
                page.goto(url)
                page.get_by_role("heading", name="Sign in").wait_for()
                assert page.get_by_text("No run").count() == 0
                page.get_by_role("button", name="Sign in").click()
                page.get_by_role("button", name=name, exact=True).click()
                page.get_by_text(expected).first.wait_for()
                page.context.close()

            request = urllib.request.Request(url, headers={"Host": "<b>evil</b>.example"})
            with pytest.raises(urllib.error.HTTPError, match="403") as refused:
                urllib.request.urlopen(request, timeout=10)  # noqa: S310 - our own server
            page = refused.value.read().decode()
            assert "opened it as <code>&lt;b&gt;evil&lt;/b&gt;.example</code>" in page
            assert "<code>localhost</code>, <code>127.0.0.1</code>" in page
            assert refused.value.headers["X-Frame-Options"] == "SAMEORIGIN"

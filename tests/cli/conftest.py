"""A small project with names, licences and texts that try to be markup."""

import copy

import pytest


@pytest.fixture(scope="session")
def nasty_root(tmp_path_factory):
    import audited_project

    root = tmp_path_factory.mktemp("nasty")
    config = copy.deepcopy(audited_project.CONFIG)
    try:
        for corpus, licence in zip(
            audited_project.CONFIG["corpora"],
            ("[/x]|`#\x1b[31m", "[proprietary]", "[red]MIT\nFAILED fake"),
            strict=True,
        ):
            corpus["licence"] = licence
        audited_project.CONFIG["description"] = "[bold]x[/] # | `y`\n<b>"
        audited_project.lay_project(root)
    finally:
        audited_project.CONFIG.clear()
        audited_project.CONFIG.update(config)
    return root


@pytest.fixture
def nasty(nasty_root, monkeypatch):
    """That project as the working directory; no command here changes it."""
    monkeypatch.chdir(nasty_root)
    return nasty_root

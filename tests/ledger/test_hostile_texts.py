"""Texts that a database refuses, such as a licence with a NUL, are stored with U+FFFD: nothing else waits for them."""

from ledger_rows import rows

from treering.store.ledger.models import LicenceRow, UnreadRow
from treering.store.ledger.records import CorpusRecord, Source


def test_a_licence_and_a_problem_of_any_text_are_stored(ledger, database):
    licences = {"MIT\0": (1, 2), "\ud800": (3, 4)}
    ledger.add_corpora([CorpusRecord("sha256:1", "a\0", "b\ud800", 4, 6, licences)])
    source = Source("here", "node", "/here")
    assert ledger.saw(source, {"run": "found \0\ud800"}, ["run"]) == {"run"}
    assert {row["licence"] for row in rows(database, LicenceRow)} == {"MIT\ufffd", "\ufffd"}
    assert [row["problem"] for row in rows(database, UnreadRow)] == ["found \ufffd\ufffd"]

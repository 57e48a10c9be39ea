"""The licences of corpora: counted where the corpora are, also when they come after the run was shipped."""

import shutil

from audited_project import lay_project
from ledger_rows import rows, settle

from treering.project import Project
from treering.runlog.find import runs_of_any_trainer
from treering.ship.ledger import target
from treering.store.ledger.models import CorpusRow, LicenceRow


def test_licences_of_corpora_that_come_later_are_added(tmp_path, database):
    project = Project(tmp_path / "here")
    project.root.mkdir()
    lay_project(project.root)
    (run,) = runs_of_any_trainer(project.runs)
    project.corpora.rename(tmp_path / "away")
    settle(run.path)
    assert target(project).shipper(run).ship().sent["run row"] == 1
    assert rows(database, CorpusRow) == []
    shutil.copytree(tmp_path / "away", project.corpora)
    made = target(project)
    assert made.shipper(run).ship().sent == {"corpus row": 3}
    found = {(row["licence"], row["documents"]) for row in rows(database, LicenceRow)}
    assert found == {("CC0-1.0", 20), ("MIT", 30), ("Apache-2.0", 200)}
    assert not made.shipper(run).ship().news

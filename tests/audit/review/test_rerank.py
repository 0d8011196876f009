"""Decisions of a review rank the other rows again."""

import numpy as np
import pytest

from peerloss.audit.folder import read_folder
from peerloss.audit.review import (
    DecisionsFile,
    Review,
    gold_from_decisions,
    plan_cleaning,
    read_decisions,
    rerank,
)
from peerloss.audit.review._decisions_file import Decision
from peerloss.exceptions import InvalidInputError
from tests.audit.made_up import write_audit


@pytest.fixture
def audit(tmp_path):
    """Return a folder with decisions on the first four suspects, and the clean labels."""
    clean = write_audit(tmp_path)
    folder = read_folder(tmp_path / "audit")
    with DecisionsFile(folder.decisions_path) as file:
        for suspect in folder.suspects().head(4).to_dict("records"):
            true = str(clean[suspect["row"]])
            if true == suspect["given"]:
                file.append(suspect["row"], "keep")
            else:
                file.append(suspect["row"], "change", true)
    return folder, clean


def test_decisions_are_known_labels(audit):
    """Kept rows have their given label, changed ones the new one; skipped rows are unknown."""
    folder, _ = audit
    given = folder.labels["given"].tolist()
    decisions = [Decision(0, "keep"), Decision(1, "change", folder.classes[0]), Decision(2, "skip")]
    assert gold_from_decisions(folder, decisions) == {0: given[0], 1: folder.classes[0]}


def test_decided_rows_are_certain_and_the_folder_stays_usable(audit):
    """The new labels.csv is read, reviewed and applied like the first one; data and decisions stay."""
    folder, clean = audit
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    found, n_known = rerank(folder)
    assert n_known == 4
    again = read_folder(folder.path)
    decided = again.labels["row"].isin([d.row for d in read_decisions(again.decisions_path)])
    assert again.labels["p_error"][decided].isin([0.0, 1.0]).all()
    assert (again.labels["gain"][decided] == 0.0).all()
    known_wrong = again.labels["given"].to_numpy() != clean
    assert (again.labels["p_error"][decided] == known_wrong[decided]).all()
    assert again.manifest["decisions"] == 4
    assert again.manifest["summary"]["expected_errors"] == round(found.expected_errors, 3)
    for name in ("data.csv", "decisions.jsonl", "probabilities.npy"):
        assert (folder.path / name).read_bytes() == before[name]
    assert plan_cleaning(again, "keep").decided == 4
    review = Review(again)
    review.close()


def test_a_skip_by_another_reviewer_changes_nothing(audit):
    """Review, rerank and apply all use the earlier decision."""
    folder, _ = audit
    made, plan = read_decisions(folder.decisions_path), plan_cleaning(folder, "drop")
    known = gold_from_decisions(folder, made)
    review = Review(folder, reviewer="Bo")
    before = review.state()
    after = review.decide("skip", 0, None)
    review.close()
    assert after == before
    skipped = read_decisions(folder.decisions_path)
    assert len(skipped) == len(made) + 1
    assert gold_from_decisions(folder, skipped) == known
    assert plan_cleaning(folder, "drop") == plan


def test_decisions_on_rows_that_are_no_longer_suspects_stay_out_of_the_review(audit):
    """They are not counted, and undo cancels the last decision on a suspect instead, or nothing."""
    folder, _ = audit
    spare = folder.labels["row"][~folder.labels["flagged"]].iloc[0]
    with DecisionsFile(folder.decisions_path) as file:
        file.append(int(spare), "keep", note="of a row that is fine")
    review = Review(folder)
    counts = [review.state()[action] for action in ("keep", "change", "drop", "skip")]
    undone = review.decide("undo", None, None)
    for _ in range(4):
        last = review.decide("undo", None, None)
    review.close()
    assert sum(counts) == 4
    assert (undone["next"], undone["decision"]) == (3, None)
    assert [d.row for d in read_decisions(folder.decisions_path)] == [spare]
    assert (last["next"], last["decision"]) == (0, None)


def test_running_it_twice_changes_nothing(audit):
    """The result depends on the decisions alone, not on the number of runs."""
    folder, _ = audit
    first, _ = rerank(folder)
    second, _ = rerank(read_folder(folder.path))
    assert second.table["p_error"].tolist() == first.table["p_error"].tolist()


def test_other_files_of_the_folder_stay(audit):
    """Sub-folders and unknown files are kept."""
    folder, _ = audit
    (folder.path / "notes").mkdir()
    (folder.path / "notes" / "mine.txt").write_text("mine")
    rerank(folder)
    assert (folder.path / "notes" / "mine.txt").read_text() == "mine"


def test_without_decisions_it_is_refused(tmp_path):
    """The ranking would not change."""
    write_audit(tmp_path)
    with pytest.raises(InvalidInputError, match="has no decisions yet, so the ranking would not change"):
        rerank(read_folder(tmp_path / "audit"))


def test_decisions_of_another_audit_are_refused(audit):
    """A decision on a row or a label that does not exist names the file; nothing is written."""
    folder, _ = audit
    with DecisionsFile(folder.decisions_path) as file:
        file.append(10_000, "keep")
    before = (folder.path / "labels.csv").read_bytes()
    with pytest.raises(
        InvalidInputError, match=r"has a decision on row 10000 .* does not belong to this audit"
    ):
        rerank(folder)
    assert (folder.path / "labels.csv").read_bytes() == before


def test_a_running_review_is_not_disturbed(audit):
    """While a review writes decisions, the folder is not replaced."""
    folder, _ = audit
    review = Review(folder)
    try:
        with pytest.raises(InvalidInputError, match="is open in another review"):
            rerank(folder)
    finally:
        review.close()


def test_the_ranking_of_other_rows_changes(tmp_path):
    """If suspects turn out to be right, the other labels are less suspicious than before."""
    write_audit(tmp_path, n=300)
    folder = read_folder(tmp_path / "audit")
    with DecisionsFile(folder.decisions_path) as file:
        for row in folder.suspects()["row"].head(12):
            file.append(row, "keep")
    before = folder.labels["p_error"].to_numpy()
    found, _ = rerank(folder)
    rest = np.setdiff1d(np.arange(300), folder.suspects()["row"].head(12))
    assert found.table["p_error"].to_numpy()[rest].mean() < before[rest].mean()

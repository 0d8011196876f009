"""Explanations in an audit folder: read as written, or refused."""

import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloss.audit._stored_explanations import dump_explanations, load_explanations
from peerloss.audit.folder import read_folder
from peerloss.audit.review import Review
from peerloss.exceptions import InvalidInputError
from tests.audit.made_up import made_audit, write_audit


def entry():
    return {
        "row": 1,
        "probabilities": [[0, 0.75], [1, 0.25]],
        "nearest": [0, 2],
        "given": [2],
        "suggested": [],
        "unusual": [["size", "3", "the median is 1"]],
    }


def test_explanations_are_read_back():
    """Positions of the audit become rows of the data."""
    audit, _, _ = made_audit()
    found = audit.explanations
    read = load_explanations(dump_explanations(found, np.arange(60) + 5), n_rows=65, n_classes=3)
    assert list(read) == (found.suspects + 5).tolist()
    first = read[int(found.suspects[0]) + 5]
    assert first.nearest == (found.nearest[0] + 5).tolist()
    assert [p for _, p in first.probabilities] == pytest.approx(
        np.sort(found.probabilities[0])[::-1], abs=1e-6
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("row", 3), ("row", -1), ("row", True), ("row", 1.0), ("row", None), ("nearest", [9]),
        ("nearest", 1), ("nearest", "ab"), ("given", [None]), ("suggested", [[0]]),
        ("probabilities", [[2, 0.5]]),
        ("probabilities", [[0, "x"]]), ("probabilities", [[0, 2.0]]), ("probabilities", [[0, float("nan")]]),
        ("probabilities", [[0]]), ("probabilities", ["ab"]), ("unusual", [["a", "b"]]),
        ("unusual", [["a", "b", 1]]), ("unusual", {}),
    ],
)  # fmt: skip
def test_other_content_is_refused(name, value):
    """Rows and classes outside the data, and values of other types, raise ValueError."""
    good = {"rows": [entry()]}
    assert load_explanations(json.dumps(good), n_rows=3, n_classes=2)[1].given_examples == [2]
    bad = copy.deepcopy(good)
    bad["rows"][0][name] = value
    with pytest.raises(ValueError, match=r"not a |must have lists|not a position"):
        load_explanations(json.dumps(bad), n_rows=3, n_classes=2)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 5), st.floats(), st.text(max_size=3)),
    lambda part: st.one_of(
        st.lists(part, max_size=3), st.dictionaries(st.sampled_from(sorted(entry())), part, max_size=6)
    ),
    max_leaves=12,
)


@given(content=st.one_of(JSON, st.builds(lambda rows: {"rows": rows}, JSON)))
@settings(max_examples=150)
def test_any_json_is_read_or_refused(content):
    """No content leads to another error than ValueError."""
    try:
        found = load_explanations(json.dumps(content), n_rows=3, n_classes=2)
    except ValueError:
        return
    assert all(0 <= row < 3 for row in found)


def test_a_changed_file_is_refused(tmp_path):
    """The manifest has its SHA-256; a manifest that matches nonsense is a damaged audit."""
    write_audit(tmp_path)
    folder = tmp_path / "audit"
    file = folder / "explanations.json"
    text = file.read_text()
    file.write_text(text.replace("nearest", "farther"))
    with pytest.raises(InvalidInputError, match=r"explanations\.json was changed since the audit"):
        read_folder(folder)
    file.write_text(text)
    read = read_folder(folder)
    file.write_text("{}")
    with pytest.raises(InvalidInputError, match="is a damaged audit: an entry has no 'rows'"):
        Review(read)
    file.unlink()
    with pytest.raises(InvalidInputError, match="is a damaged audit"):
        read_folder(folder)

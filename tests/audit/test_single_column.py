"""Labels of one annotator are one label per row, in whatever shape they are passed."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from peerloss import find_label_issues
from peerloss.exceptions import InvalidInputError

N = 200


@pytest.fixture(scope="module")
def task():
    """Return features, labels of which every eighth is wrong, and probabilities of the labels."""
    rng = np.random.default_rng(0)
    clean = np.arange(N) % 2
    X = pd.DataFrame({"x": clean * 3 + rng.normal(size=N)}, index=[f"r{i}" for i in range(N)])
    wrong = rng.permutation(N) % 8 == 0
    codes = np.where(wrong, 1 - clean, clean)
    p = np.where(clean == 1, 0.85, 0.15) + rng.uniform(-0.05, 0.05, N)
    return X, pd.Series(np.array(["no", "yes"])[codes], index=X.index, name="answer"), p


def long_table(y):
    return pd.DataFrame({"task": y.index, "worker": "ann", "label": y.to_numpy()})


FORMS = {
    "array": lambda y: y.to_numpy().reshape(-1, 1),
    "list": lambda y: [[label] for label in y],
    "frame": lambda y: y.to_frame(),
    "long table": lambda y: long_table(y).sample(frac=1, random_state=0),
    "silent annotator": lambda y: y.to_frame().assign(bob=None),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("trained", [True, False])
def test_one_annotator_gives_the_audit_of_one_label_per_row(task, form, trained):
    """An estimator or probabilities give exactly the table that they give with labels (n,)."""
    X, y, p = task
    options = {"estimator": LogisticRegression()} if trained else {"pred_proba": np.column_stack([1 - p, p])}
    expected = find_label_issues(X, y, **options)
    found = find_label_issues(X, FORMS[form](y), **options)
    pd.testing.assert_frame_equal(found.table, expected.table)
    np.testing.assert_array_equal(found.noise.transition, expected.noise.transition)
    assert found.row_noise is None


def test_a_frame_of_one_column_must_have_the_index_of_the_features(task):
    """It is matched by its index, as a Series is."""
    X, y, _ = task
    with pytest.raises(InvalidInputError, match="`X` and `labels` must have the same index"):
        find_label_issues(X, y.iloc[::-1].to_frame(), estimator=LogisticRegression())


@pytest.mark.parametrize("form", ["frame", "long table"])
def test_one_annotator_alone_is_not_enough(task, form):
    """Nothing can be compared without features, probabilities or a second annotator."""
    with pytest.raises(InvalidInputError, match="got only one label per row"):
        find_label_issues(labels=FORMS[form](task[1]))


def test_sparse_labels_are_refused_with_the_remedy(task):
    """Missing entries of a sparse matrix are labels 0, not missing labels."""
    with pytest.raises(InvalidInputError, match=r"`labels` must be dense.*\(200, 2\).*labels.toarray\(\)"):
        find_label_issues(task[0], csr_matrix(np.ones((N, 2))))

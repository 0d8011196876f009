"""Audits of token labels."""

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from peerloss import find_label_issues
from peerloss.audit import find_token_issues
from peerloss.datasets import read_conll
from peerloss.exceptions import InvalidInputError

TAGS = np.array(["LOC", "O", "PER"])


def example(n=120, seed=0):
    """Return sentences of 3 to 9 tokens: labels, probabilities, tokens, and which labels are wrong."""
    rng = np.random.default_rng(seed)
    labels, probas, tokens, wrong = [], [], [], []
    for sentence in range(n):
        size = int(rng.integers(3, 10))
        clean = rng.choice(3, size=size, p=[0.1, 0.8, 0.1])
        z = rng.normal(size=(size, 3))
        z[np.arange(size), clean] += 4
        proba = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
        missed = (clean != 1) & (rng.random(size) < 0.3)
        labels.append(TAGS[np.where(missed, 1, clean)].tolist())
        probas.append(proba)
        tokens.append([f"t{sentence}.{i}" for i in range(size)])
        wrong.append(missed)
    return labels, probas, tokens, wrong


def test_tokens_are_rows_of_one_audit():
    """The probabilities and ranks are those of find_label_issues on all tokens; the table says where."""
    labels, probas, tokens, wrong = example()
    audit = find_token_issues(labels, probas, tokens=tokens)
    flat = find_label_issues(labels=np.concatenate(labels), pred_proba=np.concatenate(probas)).table
    for column in ("given", "suggested", "p_error", "p_suggested", "rank", "flagged"):
        assert (audit.table[column] == flat[column]).all()
    for _, row in audit.table.sample(30, random_state=0).iterrows():
        assert labels[row["sentence"]][row["position"]] == row["given"]
        assert tokens[row["sentence"]][row["position"]] == row["token"]
    assert roc_auc_score(np.concatenate(wrong), audit.table["p_error"]) > 0.85


def test_sentences_are_ranked_by_the_probability_of_any_error():
    """1 − Π(1 − p) over the tokens; sentences with a wrong label come first; empty sentences come last."""
    labels, probas, _, wrong = example()
    labels.append([])
    probas.append(np.zeros((0, 3)))
    examples = find_token_issues(labels, probas).examples
    p_error = find_token_issues(labels, probas).table.groupby("sentence")["p_error"]
    expected = p_error.agg(lambda p: 1 - np.prod(1 - p)).reindex(range(121), fill_value=0.0)
    np.testing.assert_allclose(examples["p_any_error"], expected, atol=1e-12)
    assert examples.loc[120, "rank"] == 121
    assert examples["labels"].tolist() == [len(sentence) for sentence in labels]
    has_error = np.array([sentence.any() for sentence in wrong])
    assert roc_auc_score(has_error, examples["p_any_error"][:120]) > 0.8


def test_relabel_gives_sentences_back():
    """The corrected labels have the shape of the given ones, which stay unchanged."""
    labels, probas, _, wrong = example()
    audit = find_token_issues(labels, probas)
    before = [list(sentence) for sentence in labels]
    better = audit.relabel()
    assert labels == before
    assert [len(s) for s in better] == [len(s) for s in labels]
    changed = sum(
        a != b for one, two in zip(labels, better, strict=True) for a, b in zip(one, two, strict=True)
    )
    table = audit.table
    assert changed == int(((table["p_error"] > 0.5) & (table["p_suggested"] >= 1 - table["p_error"])).sum())
    assert 0 < changed < 2 * sum(map(sum, wrong))


def test_pieces_of_words_are_left_out():
    """Integer labels: those equal to ignore_index are not audited and keep their place in the sentence."""
    labels, probas, _, _ = example()
    codes = [np.searchsorted(TAGS, sentence) for sentence in labels]
    whole = find_token_issues(codes, probas)
    codes = [np.append(sentence, -100) for sentence in codes]
    padded = find_token_issues(codes, [np.vstack([proba, np.full(3, 1 / 3)]) for proba in probas])
    pd.testing.assert_frame_equal(padded.table, whole.table)
    assert padded.relabel()[0][-1] == -100


def test_classes_name_the_columns():
    """Columns in another order, and a class without a token, are named by `classes`."""
    labels, probas, _, _ = example()
    order = ["PER", "MISC", "O", "LOC"]
    wide = [np.column_stack([p[:, 2], np.zeros(len(p)), p[:, 1], p[:, 0]]) for p in probas]
    audit = find_token_issues(labels, wide, classes=order)
    assert audit.audit.classes.tolist() == order
    assert set(audit.table["given"]) == set(TAGS)


def test_a_conll_file_can_be_audited(tmp_path):
    """What read_conll returns is what the audit takes."""
    labels, probas, tokens, _ = example(n=40)
    lines = [
        "".join(f"{token} {tag}\n" for token, tag in zip(some, tags, strict=True))
        for some, tags in zip(tokens, labels, strict=True)
    ]
    path = tmp_path / "some.conll"
    path.write_text("\n".join(lines), encoding="utf-8")
    found = read_conll(path)
    audit = find_token_issues(found.tags, probas, tokens=found.tokens)
    pd.testing.assert_frame_equal(audit.table, find_token_issues(labels, probas, tokens=tokens).table)
    audit.to_csv(tmp_path / "tokens.csv", spreadsheet_safe=True)
    assert len(pd.read_csv(tmp_path / "tokens.csv")) == len(audit.table)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": []}, "`labels` is empty"),
        ({"labels": ["O", "O"]}, "`labels` must have a list for each sentence.*sentence 0 is str"),
        ({"pred_proba": [np.full((2, 2), 0.5)]}, "same number of sentences; got 1 and 2"),
        ({"pred_proba": [np.full((2, 2), 0.5)] * 2}, r"`pred_proba\[1\]` must have one row per token.*1"),
        (
            {"pred_proba": [np.full((2, 2), 0.5), np.full((1, 3), 0.3)]},
            r"`pred_proba\[1\]`.* 2 columns, as those before it; got shape \(1, 3\)",
        ),
        ({"tokens": [["a", "b"], []]}, r"`tokens\[1\]` must have one token per label of the sentence, 1"),
        ({"labels": [["O", None], ["X"]]}, "token 1 of sentence 0 has none"),
        ({"labels": [[-100, -100], [-100]]}, "at least one token with a label"),
        ({"classes": ["O"]}, "`classes` must name each column of `pred_proba` once, 2"),
        ({"classes": ["O", "Y"]}, "`labels` must be among `classes`; found 'X', token 0 of sentence 1"),
    ],
)
def test_bad_input_is_named(change, message):
    """The message names the argument, the sentence and what was expected."""
    proba = [np.full((2, 2), 0.5), np.full((1, 2), 0.5)]
    options = {"labels": [["O", "O"], ["X"]], "pred_proba": proba} | change
    with pytest.raises(InvalidInputError, match=message):
        find_token_issues(options.pop("labels"), options.pop("pred_proba"), **options)

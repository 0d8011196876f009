"""The table of workers."""

import os

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

import peerloss
from peerloss.crowd import aggregate_labels, dawid_skene, find_copiers, score_annotators
from peerloss.datasets import load_real_noise
from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction import correlated_agreement, logarithmic_score, plain_agreement, quadratic_score
from peerloss.peer_prediction.shared_reports import SharedReports
from tests.crowd.crowds import coded, others_of, random_crowd

COLUMNS = ["score", "low", "high", "n_tasks", "agreement", "accuracy", "accuracy_low", "accuracy_high"]
COLUMNS += ["uninformative", "p_value", "q_value"]
needs_data = pytest.mark.skipif(
    not os.environ.get("PEERLOSS_DATA"), reason="PEERLOSS_DATA does not name the folder of real noise"
)
CROWDS = ("dog", "weather_sentiment", "web", "product")


def test_columns_and_rows_are_as_documented():
    """One row per worker in order of first appearance, with the documented columns."""
    frame = random_crowd(0)
    table = peerloss.score_annotators(frame, random_state=0)
    assert list(table) == COLUMNS
    assert table.index.name == "worker"
    assert table.index.tolist() == frame["worker"].unique().tolist()
    assert table["n_tasks"].to_dict() == frame["worker"].value_counts().to_dict()
    assert table["uninformative"].dtype == bool


@pytest.mark.parametrize(
    ("mechanism", "rule"),
    [("ca", correlated_agreement), ("quadratic", quadratic_score), ("log", logarithmic_score)],
)
def test_scores_are_those_of_the_mechanisms(mechanism, rule):
    """The score equals the mechanism's, and lies in its interval."""
    frame = random_crowd(1, n_tasks=40)
    table = score_annotators(frame, mechanism=mechanism, random_state=0)
    pd.testing.assert_series_equal(table["score"], rule(frame)["score"])
    assert ((table["low"] <= table["score"]) & (table["score"] <= table["high"])).all()
    assert (table["low"] < table["high"]).all()


@pytest.mark.parametrize("seed", range(4))
def test_agreement_is_that_with_the_majority_of_the_others(seed):
    """Agreement equals a count by loops; a tie counts as the probability of drawing the own label."""
    frame = random_crowd(seed, n_tasks=25, accuracy=0.3)
    expected = {}
    for row in frame.index:
        others = others_of(frame, row)
        if others:
            votes = pd.Series(others).value_counts()
            best = votes.index[votes == votes.max()]
            same = float(frame.loc[row, "label"] in best) / len(best)
            expected.setdefault(frame.loc[row, "worker"], []).append(same)
    table = score_annotators(frame, random_state=0)
    assert table["agreement"].to_dict() == pytest.approx({w: np.mean(v) for w, v in expected.items()})


@given(st.integers(0, 10_000))
def test_names_and_order_do_not_matter(seed):
    """Renamed labels and tasks and shuffled rows change nothing that is not random."""
    frame = random_crowd(seed % 50, n_tasks=20)
    rng = np.random.default_rng(seed)
    other = frame.assign(
        label=np.array(["z", "x", "y"])[rng.permutation(3)][frame["label"]],
        task=[f"t{t}" for t in frame["task"]],
    ).sample(frac=1, random_state=seed)
    exact = ["score", "n_tasks", "agreement", "accuracy", "uninformative"]
    one = score_annotators(frame, n_bootstrap=20, random_state=0)[exact]
    two = score_annotators(other, n_bootstrap=20, random_state=0)[exact]
    pd.testing.assert_frame_equal(one, two.loc[one.index], check_exact=False, atol=1e-8)


def test_same_seed_same_table():
    """The intervals depend on the seed, but not on threads or on a fitted model."""
    frame = random_crowd(2, n_tasks=50)
    table = score_annotators(frame, random_state=3, budget=10)
    pd.testing.assert_frame_equal(table, score_annotators(frame, random_state=3, budget=10, n_jobs=2))
    pd.testing.assert_frame_equal(table, score_annotators(dawid_skene(frame), random_state=3, budget=10))
    assert (table["low"] != score_annotators(frame, random_state=4)["low"]).any()


def test_affine_payments_are_fixed_before_the_scores():
    """n·base + n_shared·rate·score, rounded down; base and rate depend only on the number of reports."""
    alone = pd.DataFrame({"task": [50, 51, 52], "worker": 99, "label": [0, 1, 2]})
    frame = pd.concat([random_crowd(4, n_tasks=30), alone])
    table = score_annotators(frame, budget=1000, floor=0.5, random_state=0)
    most = 1000 / len(frame)
    base, rate = (most + 0.5) / 2, (most - 0.5) / 2
    shared = SharedReports(coded(frame)).n_tasks
    exact = base * table["n_tasks"] + rate * shared * table["score"].fillna(0)
    gap = exact - table["payment"]
    assert ((gap > -1e-9) & (gap < 0.01)).all()
    assert table["payment"][99] == pytest.approx(3 * base, abs=0.01)
    assert (table["payment"] >= 0.5 * table["n_tasks"]).all()
    assert table["payment"].sum() < 1000


@pytest.mark.parametrize("mechanism", ["ca", "quadratic", "log"])
def test_the_untruthful_split_follows_the_stated_rule(mechanism):
    """Tasks × (score − score of the same labels on unrelated tasks), by brute force."""
    frame = random_crowd(4, n_tasks=30)
    table = score_annotators(frame, mechanism=mechanism, budget="1000.00", payment="untruthful_split")
    assert np.rint(table["payment"] * 100).sum() == 100_000
    shared = SharedReports(coded(frame))
    if mechanism == "ca":
        beyond = table["score"].to_numpy()
    else:
        joint = np.zeros((3, 3))
        for row in frame.index:
            for label in others_of(frame, row):
                joint[frame.loc[row, "label"], label] += 1
        given_own = joint / joint.sum(axis=1, keepdims=True)
        if mechanism == "quadratic":
            score = 2 * given_own - (given_own**2).sum(axis=1, keepdims=True)
        else:
            score = np.log(given_own)
        beyond = []
        for worker in table.index:
            rows = [row for row in frame.index[frame["worker"] == worker] if others_of(frame, row)]
            own = frame.loc[rows, "label"].to_numpy()
            pay = np.array(
                [[np.mean([score[k, label] for label in others_of(frame, row)]) for row in rows] for k in own]
            )
            n = len(rows)
            beyond.append(np.trace(pay) / n - (pay.sum() - np.trace(pay)) / (n * (n - 1)))
    weight = np.maximum(beyond, 0) * shared.n_tasks
    np.testing.assert_allclose(table["payment"], 1000 * weight / weight.sum(), atol=0.011)


def test_a_worker_with_one_report_is_kept_without_a_score():
    """With one report there is no score, no interval and no flag; the pay is that of a score of 0."""
    frame = pd.concat([random_crowd(0), pd.DataFrame({"task": [0], "worker": [99], "label": [1]})])
    row = score_annotators(frame, budget=5, random_state=0).loc[99]
    assert np.isnan(row["score"])
    assert np.isnan(row["low"])
    assert row["n_tasks"] == 1
    assert not row["uninformative"]
    assert row["payment"] == pytest.approx(5 / len(frame) / 2, abs=0.01)


def test_a_worker_alone_on_its_tasks_is_kept_without_a_score():
    """Without peers there is no score and no agreement; a worker without labels has no accuracy either."""
    alone = pd.DataFrame({"task": [50, 51, 52], "worker": 99, "label": [0, 1, 2]})
    silent = pd.DataFrame({"task": [0], "worker": 98, "label": [np.nan]})
    frame = pd.concat([random_crowd(0), alone, silent])
    table = score_annotators(frame, budget=5, payment="untruthful_split", random_state=0)
    assert table.loc[[98, 99], ["score", "low", "high", "agreement"]].isna().all(axis=None)
    assert table.loc[[98, 99], "n_tasks"].tolist() == [0, 3]
    assert table["accuracy"].isna().tolist() == [False] * 6 + [False, True]
    assert table.loc[[98, 99], "payment"].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mechanism": "vote"}, "`mechanism` must be one of 'ca', 'quadratic', 'log'"),
        ({"confidence": 1}, "`confidence` must lie in"),
        ({"false_positive_rate": -0.1}, "`false_positive_rate` must lie in"),
        ({"n_bootstrap": 3}, "`n_bootstrap` must be an integer of at least 20"),
        ({"budget": -4}, "`budget` must be a positive sum"),
        ({"budget": 4, "payment": "fair"}, "`payment` must be one of 'affine', 'untruthful_split'"),
        ({"budget": 4, "mechanism": "log"}, "`payment` 'affine' needs `mechanism` 'ca'; got 'log'"),
        ({"budget": 4, "floor": 1}, "`budget` must exceed .* reports times the `floor` of 1; got 4"),
        ({"duplicates": "drop"}, "`duplicates` must be one of 'first', 'last', 'error'; got 'drop'"),
    ],
)
def test_refuses_arguments_out_of_range(change, message):
    """Each message names the argument."""
    with pytest.raises(InvalidInputError, match=message):
        score_annotators(random_crowd(0), **change)


@pytest.mark.parametrize("function", [score_annotators, aggregate_labels, dawid_skene, find_copiers])
def test_duplicates_are_refused_or_one_is_kept(function):
    """If a worker labelled a task twice, this is an error by default, or one of the labels is kept."""
    frame = random_crowd(3, n_tasks=30)
    again = frame.iloc[:5].assign(label=(frame["label"].iloc[:5] + 1) % 3)
    both = pd.concat([frame, again], ignore_index=True)
    with pytest.raises(InvalidInputError, match=r"columns 'task' and 'worker'.*duplicates='first'"):
        function(both)
    options = {"random_state": 0} if function is score_annotators else {}
    later = frame.assign(label=np.where(frame.index < 5, (frame["label"] + 1) % 3, frame["label"]))
    for duplicates, kept in (("first", frame), ("last", later)):
        found, expected = function(both, duplicates=duplicates, **options), function(kept, **options)
        if function is dawid_skene:
            found, expected = (
                pd.Series(model.probabilities.max(axis=1), model.reports.tasks) for model in (found, expected)
            )
        if function is score_annotators:  # the seed of an interval depends on the order of the rows
            found, expected = found.drop(columns=["low", "high"]), expected.drop(columns=["low", "high"])
        found, expected = (pd.DataFrame(table).sort_index() for table in (found, expected))
        pd.testing.assert_frame_equal(found, expected, rtol=0, atol=1e-9)


def test_refuses_a_single_worker():
    """Peer prediction needs two workers."""
    with pytest.raises(InvalidInputError, match="a task with labels of two workers"):
        score_annotators([(0, "ann", "a"), (1, "ann", "b")])


@pytest.fixture(scope="module")
def real():
    """Load the four crowds with gold labels."""
    return {name: load_real_noise(name) for name in CROWDS}


def with_spammers(frame, kind, n_classes, rng):
    """Add ten workers who do not look at the tasks, each with the number of tasks of some real worker."""
    size = frame["worker"].value_counts()
    tasks, top = frame["task"].unique(), frame["label"].mode()[0]
    frames = [frame.astype({"worker": str})]
    for i in range(10):
        n = min(len(tasks), int(rng.choice(size[size >= 20])))
        label = {
            "constant": np.full(n, rng.integers(n_classes)),
            "majority": np.full(n, top),
            "random": rng.integers(n_classes, size=n),
        }[kind]
        chosen = rng.choice(tasks, n, replace=False)
        frames.append(pd.DataFrame({"task": chosen, "worker": f"spam{i}", "label": label}))
    return pd.concat(frames)


def auroc(score, spam):
    honest, bad = score[~spam].to_numpy()[:, None], score[spam].to_numpy()
    return float((honest > bad).mean() + (honest == bad).mean() / 2)


@needs_data
@pytest.mark.parametrize("kind", ["constant", "majority", "random"])
def test_ca_finds_spammers_in_real_crowds(real, kind):
    """AUROC of CA is at least .95 on dog and weather; against majority guessers it beats agreement on all."""
    for name, data in real.items():
        frame = data.reports.drop_duplicates(["task", "worker"])
        mixed = with_spammers(frame, kind, data.n_classes, np.random.default_rng(0))
        score, plain = correlated_agreement(mixed), plain_agreement(mixed)["score"]
        enough = score["n_tasks"] >= 20
        spam = score.index[enough].str.startswith("spam")
        found = auroc(score.loc[enough, "score"], spam)
        if name in {"dog", "weather_sentiment"}:
            assert found >= 0.95, name
        if kind == "majority":
            assert found > auroc(plain[enough], spam), name


@needs_data
def test_dawid_skene_beats_the_majority_where_it_can(real):
    """Its labels are better on three of four crowds; the rank correlation of accuracies is at least .8."""
    gains = {}
    for name, data in real.items():
        frame = data.reports.drop_duplicates(["task", "worker"])
        model = dawid_skene(frame)
        labels = aggregate_labels(model)
        gold = data.gold.reindex(labels.index).dropna()
        right = labels.loc[gold.index, ["label", "majority"]].eq(gold, axis=0).mean()
        gains[name] = right["label"] - right["majority"]
        checked = frame.assign(gold=frame["task"].map(data.gold)).dropna()
        exact = (checked["label"] == checked["gold"]).groupby(checked["worker"]).mean()
        enough = exact.index[frame["worker"].value_counts()[exact.index] >= 20]
        accuracy = pd.Series(model.accuracy, index=model.reports.workers)
        assert spearmanr(accuracy[enough], exact[enough])[0] >= 0.8, name
    assert sum(gain > 0.01 for gain in gains.values()) >= 3
    assert min(gains.values()) > -0.01


@needs_data
def test_real_suspects_are_no_better_than_chance(real):
    """Flagged workers in real crowds are right far less often than the others."""
    for name, data in real.items():
        frame = data.reports.drop_duplicates(["task", "worker"])
        flag = score_annotators(frame, n_bootstrap=20, random_state=0)["uninformative"]
        checked = frame.assign(gold=frame["task"].map(data.gold)).dropna()
        exact = (checked["label"] == checked["gold"]).groupby(checked["worker"]).mean()
        assert flag.sum() <= 0.1 * len(flag), name
        if flag.any():
            assert exact[flag.index[flag]].mean() < exact.mean() - 0.15, name


@pytest.mark.parametrize("options", [{"floor": 0.1}, {"floor": np.nan, "budget": 10}])
def test_a_floor_without_effect_is_refused(options):
    """A floor needs a budget and the affine payment, and must be a number."""
    table = pd.DataFrame({"task": [0, 0, 1, 1], "worker": ["a", "b"] * 2, "label": [0, 0, 1, 1]})
    with pytest.raises(InvalidInputError, match="`floor`"):
        score_annotators(table, **options)


def test_accuracy_lies_in_its_interval():
    """The interval contains the estimate, is wider at a higher level, and is nan without a report."""
    silent = pd.DataFrame({"task": [0], "worker": 98, "label": [np.nan]})
    frame = pd.concat([random_crowd(5, n_tasks=40), silent])
    table = score_annotators(frame, n_bootstrap=20, random_state=0)
    wide = score_annotators(frame, confidence=0.99, n_bootstrap=20, random_state=0)
    some = table.index != 98
    assert (table["accuracy_low"] <= table["accuracy"])[some].all()
    assert (table["accuracy"] <= table["accuracy_high"])[some].all()
    assert (wide["accuracy_low"] < table["accuracy_low"])[some].all()
    assert (wide["accuracy_high"] > table["accuracy_high"])[some].all()
    assert table.loc[98, ["accuracy_low", "accuracy_high", "p_value", "q_value"]].isna().all()


def test_accuracy_intervals_hold_in_simulated_crowds():
    """At least 90 % of the 95 % intervals contain the share of correct answers of their worker."""
    held = total = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        truth = rng.integers(3, size=150)
        skill = rng.uniform(0.4, 0.95, 20)
        labels = np.where(rng.random((20, 150)) < skill[:, None], truth, rng.integers(3, size=(20, 150)))
        worker, task = np.nonzero(rng.random((20, 150)) < 0.25)
        frame = pd.DataFrame({"task": task, "worker": worker, "label": labels[worker, task]})
        right = pd.Series(labels[worker, task] == truth[task]).groupby(worker).mean()
        table = score_annotators(frame, n_bootstrap=20, random_state=0).sort_index()
        held += ((table["accuracy_low"] <= right) & (right <= table["accuracy_high"])).sum()
        total += len(right)
    assert held >= 0.9 * total


def test_gold_labels_change_accuracy_but_not_scores_or_payments():
    """Gold labels make the accuracy of a worker who gave them larger; score and payment stay the same."""
    frame = random_crowd(4, n_tasks=40)
    gold = frame[frame["worker"] == 2].set_index("task")["label"]
    options = {"budget": 100, "n_bootstrap": 20, "random_state": 0}
    with_gold, without = score_annotators(frame, gold=gold, **options), score_annotators(frame, **options)
    assert with_gold.loc[2, "accuracy"] == 1
    same = ["score", "low", "high", "agreement", "payment"]
    pd.testing.assert_frame_equal(with_gold[same], without[same])
    fitted = dawid_skene(frame, gold=gold)
    pd.testing.assert_frame_equal(score_annotators(fitted, **options), with_gold)
    with pytest.raises(InvalidInputError, match="`gold` must be passed to `dawid_skene`"):
        score_annotators(fitted, gold=gold)


def test_q_values_decide_who_is_flagged():
    """Flagged workers have a q-value of at most the rate, and at the rate 0 nobody is flagged."""
    rng = np.random.default_rng(1)
    truth = rng.integers(3, size=300)
    labels = np.where(rng.random((20, 300)) < 0.75, truth, rng.integers(3, size=(20, 300)))
    labels[:3] = rng.integers(3, size=(3, 300))
    worker, task = np.indices(labels.shape)
    frame = pd.DataFrame({"task": task.ravel(), "worker": worker.ravel(), "label": labels.ravel()})
    table = score_annotators(frame, n_bootstrap=20, random_state=0)
    assert table.index[table["uninformative"]].tolist() == [0, 1, 2]
    assert (table["q_value"][:3] <= 0.05).all()
    assert (table["q_value"][3:] > 0.05).all()
    assert table["p_value"].between(0, 1).all()
    assert not score_annotators(frame, false_positive_rate=0, random_state=0)["uninformative"].any()

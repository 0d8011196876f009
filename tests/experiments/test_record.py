"""A record is read if it has all fields of the right types; everything else is skipped."""

import pytest

from peerloss.experiments import Record
from tests.report.made_up import curve, plane, record


def is_usable(fields):
    return Record(fields).is_usable


def test_a_complete_record_is_usable():
    """With curves and planes, and if training diverged."""
    assert is_usable(record())
    assert is_usable(record(test_accuracy=None))
    assert is_usable(record(curve=curve(test_accuracy=[0.5]), plane=plane()))


@pytest.mark.parametrize(
    "damage",
    [
        {"test_accuracy": "high"},
        {"test_accuracy": 1.5},
        {"test_accuracy": float("inf")},
        {"data_set": 3},
        {"prior": None},
        {"e_neg": "0.1"},
        {"e_pos": float("nan")},
        {"e_pos": [0.1]},
        {"seed": 1.5},
        {"seed": True},
        {"seed": 10**300},
        {"n_test": 0},
        {"n_test": 10**400},
        {"chosen": 1},
        {"chosen": -1},
        {"seconds": None},
        {"seconds": "long"},
        {"seconds": float("inf")},
        {"trials": []},
        {"trials": None},
        {"trials": {"settings": {"alpha": [1, 2]}, "noisy_validation": [0.1], "test_accuracy": [0.1]}},
        {"trials": {"settings": {"alpha": "1"}, "noisy_validation": [0.1], "test_accuracy": [0.1]}},
        {"trials": {"settings": [], "noisy_validation": [0.1], "test_accuracy": [0.1]}},
        {"curve": {"step": [1, 2], "test_accuracy": [0.5]}},
        {"curve": {"test_accuracy": [0.5]}},
        {"curve": {"step": [1], "test_accuracy": [None]}},
        {"curve": [1]},
        {"plane": plane() | {"probability": [[0.1]]}},
        {"plane": plane() | {"points": []}},
        {"plane": {}},
    ],
    ids=lambda damage: f"{damage}"[:60],
)
def test_a_damaged_record_is_not_usable(damage):
    """It is neither counted nor drawn."""
    complete, changed = record(), record(**damage)
    assert not is_usable(complete | {k: v for k, v in changed.items() if k in {*damage, "trials", "key"}})


def test_a_record_without_a_field_is_not_usable():
    """Every field that is read is required."""
    for name in (
        "key",
        "trials",
        "method",
        "n_test",
        "curve",
        "plane",
        "spec",
        "finished",
        "seconds",
        "choose",
    ):
        assert not is_usable({key: value for key, value in record().items() if key != name})


def test_the_key_must_match_the_run():
    """A record under the key of another run is rejected."""
    assert not is_usable(record(seed=1) | {"key": record(seed=2)["key"]})

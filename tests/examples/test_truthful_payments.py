"""The example of truthful payments."""

import runpy
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "truthful_payments.py"


@pytest.fixture(scope="module")
def names():
    return runpy.run_path(str(SCRIPT))


def test_it_runs_and_reports_the_copier(names, capsys):
    """The script prints both jobs and the two limits; fewer seeds are enough here."""
    jobs = names["main"].__globals__["JOBS"]
    before = dict(jobs)
    jobs.update({name: replace(job, seeds=job.seeds[:3]) for name, job in before.items()})
    names["main"]()
    jobs.update(before)
    printed = capsys.readouterr().out
    assert printed.count("toss a coin") == 2
    assert "Pairs who seem to copy: honest 0 and copier" in printed


def test_honest_work_pays_best_by_ca_with_an_affine_payment(names):
    """Honest work earns most and a constant the base pay; by plain agreement a constant earns most."""
    paid = {}
    for name, seeds in (("long", 4), ("short", 60)):
        job = names["JOBS"][name]
        paid[name] = pd.DataFrame(
            {
                choice: pd.DataFrame([names["payments"](job, how, seed) for seed in job.seeds[:seeds]]).mean()
                for choice, how in job.choices().items()
                if name == "long" or choice in {"look and tell", "toss a coin", "always say negative"}
            }
        ).T
        assert paid[name]["CA, affine"].idxmax() == "look and tell"
        base = names["BUDGET"] / job.n_workers / 2
        assert paid[name].loc["always say negative", "CA, affine"] == pytest.approx(base)
    assert paid["long"]["agreement, affine"].idxmax() == "always say negative"
    assert paid["long"]["CA, split"].idxmax() == "look and tell"


def test_labels_swapped_by_all_workers_are_paid_as_honest_work(names):
    """A known limit: CA cannot distinguish them."""
    job = names["JOBS"]["long"]
    honest, swapped = (
        names["everybody"](job, names["permuted"](job.noise, order)) for order in ([0, 1], [1, 0])
    )
    assert honest == pytest.approx(swapped, abs=1e-12)

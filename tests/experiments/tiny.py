"""An experiment small enough to be run a hundred times."""

import json
from importlib import import_module
from pathlib import Path

from peerloss.experiments import Store, load_experiment, run_experiment

SPEC = """
title = "tiny"
rows = [["heart", 0.1, 0.3], ["thyroid", 0.2, 0.2]]
priors = ["equalized", "original"]
seeds = 2
test_size = 0.15
validation_size = 0.10

[paper]
trials = "all"
choose = "row"
record = ["curve"]
record_every = 5

[paper.nets]
steps = 10

[paper.methods.peer]
alpha = 1.0

[paper.methods.peer.original]
alpha = [1.0, 0.0, -5.0]

[paper.methods.dmi]
warm_start = 5

[paper.methods.c-svm]
class_weight = [1.0, 2.0]

[paper.methods.pam]
margin = [0.0, 1.0]

[fair]
trials = 2
choose = "seed"
scoring_alpha = { equalized = 1.0, original = 0.0 }

[fair.nets]
steps = 10
width = [4, 8]

[fair.methods.peer]
base = ["logistic", "sigmoid"]

[fair.methods.nn]

[fair.methods.pam]
margin = [0.0, 1.0, 2.0]
"""

#: Fields that may differ if a run is repeated.
CIRCUMSTANCES = {"seconds", "finished", "versions", "machine"}


def write_spec(folder, text=SPEC):
    path = Path(folder) / "tiny.toml"
    path.write_text(text, encoding="utf-8")
    return path


def run_tiny(spec, folder, **options):
    """Execute the missing runs in this process; the killed processes of the tests call it too."""
    with Store(folder) as store:
        return run_experiment(load_experiment(spec), store, **({"n_jobs": 1} | options))


def run_when_ready(ready, spec, folder):
    """Import what runs need, signal that the process has started, then run."""
    import_module("peerloss.experiments.tables._execute_runs")
    ready.set()
    run_tiny(spec, folder)


def results(folder):
    """Return the records of a store by key, without the circumstances."""
    return {
        record["key"]: {name: value for name, value in record.items() if name not in CIRCUMSTANCES}
        for record in Store(folder).records()
    }


def lines(folder):
    """Return all records on disk, including duplicates."""
    found = []
    for path in sorted(Path(folder).glob("records-*.jsonl")):
        found += [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return found

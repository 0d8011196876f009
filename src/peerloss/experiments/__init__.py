"""Experiments that reproduce the paper and extend it.

- An *experiment* is a TOML file, loaded and checked: the runs of a table or plot under one protocol.
- A *run* is one method on one noisy data set with one seed.
- A *recipe* is how the result of a run is obtained: settings, what is searched, how the choice is made.
- A *trial* is one training of a run, with one choice of the settings that are searched.
- A *plan* lists the runs that were requested; progress is computed from this file in the store.

A :class:`Store` is a folder with one :class:`Record` per finished run. There are two families of methods:
``tables`` (small networks and scikit-learn estimators) and ``cifar`` (deep networks on images).

>>> from peerloss.experiments import Store, final_results, load_experiment, run_experiment
>>> heart = load_experiment("table-a1", data_sets=["heart"], methods=["nn"], seeds=1)
>>> len(heart.runs())  # five noise pairs, two priors
10
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._deprecation import renamed
from peerloss._lazy_names import lazy_names

if TYPE_CHECKING:
    from peerloss.experiments._experiment import (
        IMAGE_EXPERIMENTS,
        Experiment,
        Run,
        list_experiments,
        load_experiment,
    )
    from peerloss.experiments._record import Record, Result, final_results
    from peerloss.experiments._run_experiment import RunSummary, run_experiment
    from peerloss.experiments._store import Progress, Store, StoreWarning, progress
    from peerloss.experiments.tables._methods import METHODS, EstimatorMethod, NetMethod
    from peerloss.experiments.tables._table_experiment import PROTOCOLS, Recipe, TableExperiment, TableRun

#: Module → public names that are imported from it.
_NAMES = {
    "_experiment": "IMAGE_EXPERIMENTS Experiment Run list_experiments load_experiment",
    "_record": "Record Result final_results",
    "_run_experiment": "RunSummary run_experiment",
    "_store": "Progress Store StoreWarning progress",
    "tables._methods": "METHODS EstimatorMethod NetMethod",
    "tables._table_experiment": "PROTOCOLS Recipe TableExperiment TableRun",
}

__all__ = [
    "IMAGE_EXPERIMENTS",
    "METHODS",
    "PROTOCOLS",
    "EstimatorMethod",
    "Experiment",
    "NetMethod",
    "Progress",
    "Recipe",
    "Record",
    "Result",
    "Run",
    "RunSummary",
    "Store",
    "StoreWarning",
    "TableExperiment",
    "TableRun",
    "final_results",
    "list_experiments",
    "load_experiment",
    "progress",
    "run_experiment",
]

_get_name, __dir__ = lazy_names(__name__, _NAMES)
__getattr__ = renamed(__name__, {"Cell": "peerloss.experiments.TableRun"}, otherwise=_get_name)

"""Experiments that reproduce the paper and go beyond it: specs, runner, store of results.

>>> from peerloss.experiments import Store, final_results, load_experiment, run_experiment
>>> heart = load_experiment("table-a1", data_sets=["heart"], methods=["nn"], seeds=1)
>>> len(heart.cells())  # five noise pairs, two priors
10
"""

from peerloss.experiments._cells import Cell, Recipe
from peerloss.experiments._methods import METHODS, EstimatorMethod, NetMethod
from peerloss.experiments._plans import Progress, progress
from peerloss.experiments._results import Result, final_results
from peerloss.experiments._runner import RunSummary, run_experiment
from peerloss.experiments._spec import PROTOCOLS, Experiment, list_experiments, load_experiment
from peerloss.experiments._store import Store, StoreWarning

__all__ = [
    "METHODS",
    "PROTOCOLS",
    "Cell",
    "EstimatorMethod",
    "Experiment",
    "NetMethod",
    "Progress",
    "Recipe",
    "Result",
    "RunSummary",
    "Store",
    "StoreWarning",
    "final_results",
    "list_experiments",
    "load_experiment",
    "progress",
    "run_experiment",
]

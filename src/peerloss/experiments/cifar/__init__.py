"""CIFAR-10 with made and with human noise: specs, runs of the deep loop that resume, a table.

>>> from peerloss.experiments.cifar import cifar_table, load_cifar, run_cifar
>>> experiment = load_cifar("cifar10", methods=["ce", "peer"], seeds=1)
>>> [(run.noise, run.method) for run in experiment.runs()][:2]
[('uniform:0.2', 'ce'), ('uniform:0.2', 'peer')]
"""

from peerloss.experiments.cifar._runner import CifarSummary, run_cifar
from peerloss.experiments.cifar._spec import CIFAR_SPECS, CifarExperiment, CifarRun, load_cifar
from peerloss.experiments.cifar._table import cifar_means, cifar_table
from peerloss.experiments.cifar._work import Workshop

__all__ = [
    "CIFAR_SPECS",
    "CifarExperiment",
    "CifarRun",
    "CifarSummary",
    "Workshop",
    "cifar_means",
    "cifar_table",
    "load_cifar",
    "run_cifar",
]

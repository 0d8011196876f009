"""Experiments on CIFAR-10 and CIFAR-100 with synthetic or human label noise.

Load them with :func:`~peerloss.experiments.load_experiment` and run them with
:func:`~peerloss.experiments.run_experiment`.

>>> from peerloss.experiments import load_experiment
>>> from peerloss.experiments.cifar import cifar_table
>>> experiment = load_experiment("cifar10", methods=["ce", "peer"], seeds=1)
>>> print(cifar_table(experiment, []).splitlines()[0])
# CIFAR-10 with synthetic noise (uniform noise: the paper's Table 2)
"""

from peerloss._deprecation import renamed
from peerloss.experiments.cifar._cifar_experiment import CifarExperiment, CifarRun, CifarSummary, run_cifar
from peerloss.experiments.cifar._cifar_table import CifarTable, cifar_means, cifar_table, summarise_cifar
from peerloss.experiments.cifar._train_cifar import SharedResources

__all__ = [
    "CifarExperiment",
    "CifarRun",
    "CifarSummary",
    "CifarTable",
    "SharedResources",
    "cifar_means",
    "cifar_table",
    "run_cifar",
    "summarise_cifar",
]

__getattr__ = renamed(
    __name__,
    {
        "CIFAR_SPECS": "peerloss.experiments.IMAGE_EXPERIMENTS",
        "Workshop": "peerloss.experiments.cifar.SharedResources",
        "load_cifar": "peerloss.experiments.load_experiment",
    },
)

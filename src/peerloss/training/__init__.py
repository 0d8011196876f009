"""Training on noisy labels; the loss is always a parameter.

``small``  :func:`train_nets`, the batched engine for many small networks;
``deep``   :func:`train_deep`, the loop for one deep network, with the sample sieve;
``_loop``  :func:`train`, a plain loop of a few lines for any model.
"""

from peerloss.training._loop import train
from peerloss.training.deep._augment import STRONG_AUGMENT, Augment
from peerloss.training.deep._deep_run import DeepResult
from peerloss.training.deep._predict import predict_logits, predict_mirrored
from peerloss.training.deep._recipe import DeepRecipe, Growth, Sieve
from peerloss.training.deep._sieve_targets import keep_rows
from peerloss.training.deep._train_deep import train_deep
from peerloss.training.small._engine import train_nets
from peerloss.training.small._nets import Net
from peerloss.training.small._trained_nets import TrainedNets

__all__ = [
    "STRONG_AUGMENT",
    "Augment",
    "DeepRecipe",
    "DeepResult",
    "Growth",
    "Net",
    "Sieve",
    "TrainedNets",
    "keep_rows",
    "predict_logits",
    "predict_mirrored",
    "train",
    "train_deep",
    "train_nets",
]

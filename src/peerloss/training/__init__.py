"""Training: a plain loop, an engine for many small nets, a loop for deep ones. The loss is a parameter."""

from peerloss.training._augment import STRONG_AUGMENT, Augment
from peerloss.training._deep import train_deep
from peerloss.training._deep_run import DeepResult
from peerloss.training._engine import train_nets
from peerloss.training._loop import train
from peerloss.training._nets import Net
from peerloss.training._predict import predict_logits, predict_mirrored
from peerloss.training._recipe import DeepRecipe
from peerloss.training._results import TrainedNets
from peerloss.training._sieve import Sieve, keep_rows

__all__ = [
    "STRONG_AUGMENT",
    "Augment",
    "DeepRecipe",
    "DeepResult",
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

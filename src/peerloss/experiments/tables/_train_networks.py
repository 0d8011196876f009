"""Train the networks of many runs together, and record what the plots need of each training."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch

from peerloss.experiments.tables._methods import METHODS, NET_SETTINGS, NetMethod
from peerloss.functional import peer_loss
from peerloss.metrics import peer_score
from peerloss.training import Net, TrainedNets, train_nets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerloss._validation import FloatArray, IntArray
    from peerloss.experiments.tables._execute_runs import RunData
    from peerloss.experiments.tables._table_experiment import Settings, TableRun

#: Largest number of networks that are trained in one call.
MAX_NETS = 512
#: What can be recorded of networks.
OBSERVATIONS = ("curve", "invariance", "plane")
#: Points per side of the grid on which a decision boundary is drawn, and how far it extends beyond the data.
PLANE_POINTS, PLANE_MARGIN = 60, 0.3


@dataclass(frozen=True)
class Trial:
    """The result of one training, with one point of the grid."""

    predict: Callable[[FloatArray], IntArray] | None
    """``None`` if training diverged."""
    seconds: float
    curve: dict[str, list[float]] | None = None
    """Steps, and what the recipe records at each."""
    plane: dict[str, Any] | None = None
    """Decision boundary, if the recipe records it."""


class _Request(NamedTuple):
    run: TableRun
    data: RunData
    settings: Settings

    @property
    def shape(self) -> tuple[Any, ...]:
        """What the networks trained in one call have in common."""
        names = ("width", "hidden_layers", "batch_size", "steps")
        # A rare category may be absent from one seed's training rows.
        columns = self.data.X_train.shape[1]
        return (columns, *(self.settings[name] for name in names), self.run.recipe.record_every)

    @property
    def net(self) -> Net:
        """The training. With one seed all methods have the same initial weights and batches."""
        own = {name: value for name, value in self.settings.items() if name not in NET_SETTINGS}
        return Net(
            self.data.y_train,
            X=self.data.X_train,
            learning_rate=self.settings["learning_rate"],
            weight_decay=self.settings["weight_decay"],
            random_state=self.run.seed,
            **cast("NetMethod", METHODS[self.run.method]).options(self.data, **own),
        )


def train_networks(runs: Sequence[tuple[TableRun, RunData]]) -> list[list[Trial]]:
    """Return the trials of each run, in the order of its recipe."""
    requests = [
        _Request(run, data, run.recipe.settings | own) for run, data in runs for own in run.recipe.trials
    ]
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for number, request in enumerate(requests):
        groups[request.shape].append(number)
    trials: dict[int, Trial] = {}
    for group in groups.values():
        for start in range(0, len(group), MAX_NETS):
            part = group[start : start + MAX_NETS]
            trials.update(zip(part, _train([requests[number] for number in part]), strict=True))
    in_order = (trials[number] for number in range(len(requests)))
    return [[next(in_order) for _ in run.recipe.trials] for run, _ in runs]


def _train(group: list[_Request]) -> list[Trial]:
    nets = [request.net for request in group]
    if len(nets) == 1:
        nets = nets * 2  # torch rounds a stack of one differently from larger ones
    points: list[list[dict[str, float]]] = [[] for _ in nets]

    def watch(number: int, logits: Callable[[Any], Any]) -> float:
        request = group[min(number, len(group) - 1)]
        points[number].append(observe(request.run, request.data, logits))
        return 0.0

    settings, every = group[0].settings, group[0].run.recipe.record_every
    started = time.perf_counter()
    trained = train_nets(
        None,
        nets,
        n_classes=2,
        hidden_layer_sizes=(settings["width"],) * settings["hidden_layers"],
        batch_size=settings["batch_size"],
        max_steps=settings["steps"],
        record_every=every,
        monitor=None if every is None else watch,
    )
    seconds = (time.perf_counter() - started) / len(group)
    return [_trial(trained, i, request, points[i], seconds) for i, request in enumerate(group)]


def _trial(
    trained: TrainedNets, number: int, request: _Request, points: list[dict[str, float]], seconds: float
) -> Trial:
    if trained.diverged[number]:
        return Trial(None, seconds)

    def probability(X: FloatArray) -> FloatArray:
        return trained.mean_probabilities(X, nets=[number])[:, 1]

    def predict(X: FloatArray) -> IntArray:
        return (probability(X) > 0.5).astype(np.int64)

    curve = None
    if points:
        curve = {"step": trained.steps.tolist()} | {name: [p[name] for p in points] for name in points[0]}
    plane = _plane(request.data, probability) if "plane" in request.run.recipe.record else None
    return Trial(predict, seconds, curve, plane)


def accuracy(data: RunData, predicted: IntArray) -> float:
    """Return the accuracy on the clean test labels."""
    return float((predicted == data.y_test).mean())


def observe(run: TableRun, data: RunData, logits: Callable[[FloatArray], Any]) -> dict[str, float]:
    """Return what is recorded of a network at one step; ``logits`` computes its current logits (n, 2)."""
    recipe, point = run.recipe, {}
    if "curve" in recipe.record:
        validated = logits(data.X_validation).argmax(axis=1)
        point["noisy_validation"] = peer_score(data.y_validation, validated, alpha=recipe.scoring_alpha)
        point["test_accuracy"] = accuracy(data, logits(data.X_test).argmax(axis=1))
    if "invariance" in recipe.record and data.clean is not None:
        base = str(recipe.settings.get("base", "logistic"))
        for part, X, noisy, clean in (
            ("train", data.X_train, data.y_train, data.clean[0]),
            ("validation", data.X_validation, data.y_validation, data.clean[1]),
        ):
            z = torch.as_tensor(logits(X), dtype=torch.float64)
            point[f"{part}_noisy_peer_loss"] = _peer_loss(z, noisy, base)
            point[f"{part}_clean_peer_loss"] = _peer_loss(z, clean, base)
    return point


def _peer_loss(z: torch.Tensor, y: IntArray, base: str) -> float:
    """Return the mean expected peer loss at α = 1, with the prior of these labels."""
    share = float(y.mean())
    return float(peer_loss(z, torch.from_numpy(y), base=base, alpha=1.0, noisy_prior=[1.0 - share, share]))


def _plane(data: RunData, probability: Callable[[FloatArray], FloatArray]) -> dict[str, Any]:
    """Return P(class 1) on a grid over two standardised features, and the training points."""
    low, high = data.X_train.min(axis=0) - PLANE_MARGIN, data.X_train.max(axis=0) + PLANE_MARGIN
    x, y = (np.linspace(low[i], high[i], PLANE_POINTS) for i in range(2))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    p = probability(grid).reshape(PLANE_POINTS, PLANE_POINTS)
    arrays = {"x": x, "y": y, "probability": p, "points": data.X_train}
    return {name: values.round(4).tolist() for name, values in arrays.items()} | {
        "noisy_labels": data.y_train.tolist()
    }

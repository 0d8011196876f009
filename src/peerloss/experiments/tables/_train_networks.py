"""Train the networks of many runs together."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from peerloss.experiments.tables._methods import METHODS, NET_SETTINGS, NetMethod
from peerloss.experiments.tables._trials import Trial, draw_plane, observe
from peerloss.training import Net, TrainedNets, train_nets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerloss._validation import FloatArray, IntArray
    from peerloss.experiments.tables._run_data import RunData
    from peerloss.experiments.tables._table_experiment import Settings, TableRun

#: Largest number of networks that are trained in one call.
MAX_NETS = 512


class Shape(NamedTuple):
    """What the networks trained in one call have in common."""

    columns: int
    hidden: tuple[int, ...]
    batch_size: int
    steps: int
    record_every: int | None


class _Request(NamedTuple):
    run: TableRun
    data: RunData
    net: Net
    trials: list[Trial | None]
    """The trials of the run; the result is stored at ``place``."""
    place: int


def train_networks(runs: Sequence[tuple[TableRun, RunData]]) -> list[list[Trial]]:
    """Return the trials of each run, in the order of its recipe."""
    groups: dict[Shape, list[_Request]] = defaultdict(list)
    results: list[list[Trial | None]] = []
    for run, data in runs:
        trials: list[Trial | None] = [None] * len(run.recipe.trials)
        results.append(trials)
        for place, own in enumerate(run.recipe.trials):
            settings = run.recipe.settings | own
            request = _Request(run, data, _net(run, data, settings), trials, place)
            groups[_shape(run, data, settings)].append(request)
    for shape, group in groups.items():
        for start in range(0, len(group), MAX_NETS):
            _train(shape, group[start : start + MAX_NETS])
    return cast("list[list[Trial]]", results)


def _net(run: TableRun, data: RunData, settings: Settings) -> Net:
    """Describe a training. With one seed all methods have the same initial weights and batches."""
    method = cast("NetMethod", METHODS[run.method])
    own = {name: value for name, value in settings.items() if name not in NET_SETTINGS}
    return Net(
        data.y_train,
        X=data.X_train,
        learning_rate=settings["learning_rate"],
        weight_decay=settings["weight_decay"],
        random_state=run.seed,
        **method.options(data, **own),
    )


def _shape(run: TableRun, data: RunData, settings: Settings) -> Shape:
    return Shape(
        columns=data.X_train.shape[1],  # a rare category may be absent from one seed's training rows
        hidden=(settings["width"],) * settings["hidden_layers"],
        batch_size=settings["batch_size"],
        steps=settings["steps"],
        record_every=run.recipe.record_every,
    )


def _train(shape: Shape, group: list[_Request]) -> None:
    nets = [request.net for request in group]
    if len(nets) == 1:
        nets = nets * 2  # torch rounds a stack of one differently from larger ones
    points: list[list[dict[str, float]]] = [[] for _ in nets]

    def watch(number: int, logits: Callable[[Any], Any]) -> float:
        request = group[min(number, len(group) - 1)]
        points[number].append(observe(request.run, request.data, logits))
        return 0.0

    started = time.perf_counter()
    trained = train_nets(
        None,
        nets,
        n_classes=2,
        hidden_layer_sizes=shape.hidden,
        batch_size=shape.batch_size,
        max_steps=shape.steps,
        record_every=shape.record_every,
        monitor=None if shape.record_every is None else watch,
    )
    seconds = (time.perf_counter() - started) / len(group)
    for number, request in enumerate(group):
        request.trials[request.place] = _trial(trained, number, request, points[number], seconds)


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
    plane = draw_plane(request.data, probability) if "plane" in request.run.recipe.record else None
    return Trial(predict, seconds, curve, plane)

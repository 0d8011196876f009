"""Train the networks of many cells together."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from peerloss.experiments._methods import METHODS, NET_SETTINGS, NetMethod
from peerloss.experiments._observe import draw_plane, observe
from peerloss.experiments._trials import Trial
from peerloss.training import Net, TrainedNets, train_nets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from peerloss._validation import FloatArray, IntArray
    from peerloss.experiments._cells import Cell, Settings
    from peerloss.experiments._tasks import Task

#: Most networks that are trained in one call.
NETS_AT_ONCE = 512


class Shape(NamedTuple):
    """What networks trained in one call have in common."""

    columns: int
    hidden: tuple[int, ...]
    batch_size: int
    steps: int
    record_every: int | None


class _Wanted(NamedTuple):
    cell: Cell
    task: Task
    net: Net
    trials: list[Trial | None]
    """Where the result goes, and at which place."""
    place: int


def train_networks(work: Sequence[tuple[Cell, Task]]) -> list[list[Trial]]:
    """Return the trials of each cell, in the order of its recipe."""
    groups: dict[Shape, list[_Wanted]] = defaultdict(list)
    results: list[list[Trial | None]] = []
    for cell, task in work:
        trials: list[Trial | None] = [None] * len(cell.recipe.trials)
        results.append(trials)
        for place, own in enumerate(cell.recipe.trials):
            settings = cell.recipe.settings | own
            wanted = _Wanted(cell, task, _net(cell, task, settings), trials, place)
            groups[_shape(cell, task, settings)].append(wanted)
    for shape, group in groups.items():
        for start in range(0, len(group), NETS_AT_ONCE):
            _train(shape, group[start : start + NETS_AT_ONCE])
    return cast("list[list[Trial]]", results)


def _net(cell: Cell, task: Task, settings: Settings) -> Net:
    """Describe a training. With one seed all methods start and draw batches alike."""
    method = cast("NetMethod", METHODS[cell.method])
    own = {name: value for name, value in settings.items() if name not in NET_SETTINGS}
    return Net(
        task.y_train,
        X=task.X_train,
        learning_rate=settings["learning_rate"],
        weight_decay=settings["weight_decay"],
        random_state=cell.seed,
        **method.options(task, **own),
    )


def _shape(cell: Cell, task: Task, settings: Settings) -> Shape:
    return Shape(
        columns=task.X_train.shape[1],  # a rare category may be absent from one seed's training rows
        hidden=(settings["width"],) * settings["hidden_layers"],
        batch_size=settings["batch_size"],
        steps=settings["steps"],
        record_every=cell.recipe.record_every,
    )


def _train(shape: Shape, group: list[_Wanted]) -> None:
    nets = [wanted.net for wanted in group]
    if len(nets) == 1:
        nets = nets * 2  # torch rounds a stack of one otherwise than every larger one
    points: list[list[dict[str, float]]] = [[] for _ in nets]

    def watch(number: int, logits: Callable[[Any], Any]) -> float:
        wanted = group[min(number, len(group) - 1)]
        points[number].append(observe(wanted.cell, wanted.task, logits))
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
    for number, wanted in enumerate(group):
        wanted.trials[wanted.place] = _trial(trained, number, wanted, points[number], seconds)


def _trial(
    trained: TrainedNets, number: int, wanted: _Wanted, points: list[dict[str, float]], seconds: float
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
    plane = draw_plane(wanted.task, probability) if "plane" in wanted.cell.recipe.record else None
    return Trial(predict, seconds, curve, plane)

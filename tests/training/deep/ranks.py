"""What the processes of torchrun do in the tests: train together in several ways, and write the results."""

import os
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import distributed, nn

from peerloss import PeerLoss, PlainLoss
from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.training import Augment, DeepRecipe, Growth, Sieve, train_deep
from tests.training.deep.toy import N, hold_after, images, small_encoder, small_net, tokens

#: 33 rows: the shares of two processes have 17 and 16.
RECIPE = DeepRecipe(
    epochs=4, batch_size=33, learning_rate=0.05, average=0.9, alpha=((0.2, 0.0), (1.0, 1.0)), clip_norm=0.5
)
SIEVE = Sieve(start=0.5, refresh_every=1)
STRONG = Augment(crop=2, cutout=3, affine=10.0, colour=0.2, share=0.5)


def features():
    """Return rows of five numbers, noisy labels of three classes."""
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=N)
    X = rng.normal(size=(N, 5)) + 2 * np.eye(3, 5)[y]
    return X, np.where(rng.random(N) < 0.2, rng.integers(3, size=N), y)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3)).double()


def train(loss=None, *, X=None, y=None, model=None, recipe=RECIPE, **options):
    """Train on the features unless other data are given; return weights, losses, scores and counts."""
    own, labels = features()
    X, y = own if X is None else X, labels if y is None else y
    loss, model = loss or PeerLoss(), model or net()
    held_out = (X, y if np.ndim(y) == 1 and y.min() >= 0 and y.max() < 3 else labels)
    result = train_deep(model, loss, X, y, recipe=recipe, validation=held_out, device="cpu", **options)
    return {
        "weights": {
            name: torch.cat([t.flatten().double() for t in weights.values()])
            for name, weights in result.weights.items()
        },
        "losses": [record["loss"] for record in result.history],
        "scores": [record["score"] for record in result.history],
        "kept": [record["kept"] for record in result.history],
        "best": result.best_epoch,
        "counts": getattr(loss, "label_counts", torch.zeros(0)).double(),
    }


def plain_convolution():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 64, 3))


def on_images(recipe, **options):
    X, noisy, _ = images()
    labels = np.where(np.arange(N) % 5 == 0, -1, noisy)
    result = train(X=X, y=labels, model=plain_convolution(), recipe=recipe, **options)
    return {key: result[key] for key in ("weights", "counts")}


def on_tokens():
    X, noisy, _ = tokens()
    model = small_encoder().double()
    model.layer.eval()
    model.layer.train = lambda *_: None  # dropout differs between processes
    recipe = replace(RECIPE, optimizer="adamw", learning_rate=1e-3, sieve=SIEVE)
    return train(X=X, y=noisy, model=model, recipe=recipe)


def with_weights_and_ignored_labels():
    X, y = features()
    ignored = np.where(np.arange(N) % 3 == 0, 255, y)
    loss = PlainLoss(weight=[1.0, 5.0, 0.2], ignore_index=255)
    return train(loss, X=X, y=ignored, recipe=replace(RECIPE, alpha=()))


def with_soft_labels():
    X, y = features()
    return train(X=X, y=0.7 * np.eye(3)[y] + 0.1)


def with_class_weights_of_soft_labels():
    X, y = features()
    loss = PlainLoss(weight=[1.0, 5.0, 0.2])
    return train(loss, X=X, y=0.7 * np.eye(3)[y] + 0.1, recipe=replace(RECIPE, alpha=()))


def with_class_weights_of_soft_labels_in_torch():
    X, y = features()
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 5.0, 0.2], dtype=torch.float64))
    return train(loss.double(), X=X, y=0.7 * np.eye(3)[y] + 0.1, recipe=replace(RECIPE, alpha=()))


def with_one_label_that_is_not_ignored():
    """One process has no label, for which the loss of torch is NaN."""
    X, y = features()
    ignored = np.where(np.arange(N) == 5, y, 255)
    recipe = replace(RECIPE, alpha=(), batch_size=N)
    return train(nn.CrossEntropyLoss(ignore_index=255), X=X, y=ignored, recipe=recipe)


#: Every way to train, by name. The results of two processes must be those of one.
EXACT = {
    "loss": train,
    "no average": lambda: train(recipe=replace(RECIPE, average=None)),
    "sum": lambda: train(PeerLoss(reduction="sum"), recipe=replace(RECIPE, learning_rate=0.002)),
    "function": lambda: train(nn.functional.cross_entropy, recipe=replace(RECIPE, alpha=())),
    "class weights and ignored labels": with_weights_and_ignored_labels,
    "soft labels": with_soft_labels,
    "class weights of soft labels": with_class_weights_of_soft_labels,
    "class weights of soft labels in torch": with_class_weights_of_soft_labels_in_torch,
    "one label": with_one_label_that_is_not_ignored,
    "fixed targets": lambda: train(recipe=replace(RECIPE, sieve=replace(SIEVE, refresh_every=0))),
    "refreshed targets": lambda: train(recipe=replace(RECIPE, sieve=SIEVE)),
    "mixup": lambda: train(recipe=replace(RECIPE, sieve=replace(SIEVE, mixup=True))),
    "growth": lambda: train(recipe=replace(RECIPE, sieve=replace(SIEVE, growth=Growth()))),
    "host memory": lambda: train(recipe=replace(RECIPE, sieve=SIEVE), data_on_device=False),
    "tokens": on_tokens,
}
#: Images are scaled to float32, so rounding is larger.
ROUNDED = {
    "crops": lambda: on_images(RECIPE),
    "crops in host memory": lambda: on_images(RECIPE, data_on_device=False),
    "strong changes": lambda: on_images(replace(RECIPE, augment=STRONG)),
    "growing sieve": lambda: on_images(
        replace(RECIPE, sieve=replace(SIEVE, augment=STRONG, growth=Growth()))
    ),
}


def error_of(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    return "no error"


class Overflowing(nn.Module):
    """A model whose outputs become infinite for one row only, so in one process."""

    def __init__(self, row):
        super().__init__()
        self.linear = net()
        self.register_buffer("row", row)

    def forward(self, rows):
        """Return the logits."""
        hit = (rows == self.row).all(dim=1)
        return torch.where(hit[:, None], torch.inf, self.linear(rows))


def errors(rank, folder):
    """Return the messages of wrong calls, which must be raised in both processes."""
    X, y = features()
    shuffled = y[::-1].copy() if rank else y
    broken = folder / "broken.pt"
    broken.write_bytes(b"no checkpoint")
    overflowing = Overflowing(torch.as_tensor(X[7]))
    return {
        "other labels": error_of(InvalidInputError, lambda: train(X=X, y=shuffled)),
        "batch": error_of(InvalidInputError, lambda: train(recipe=replace(RECIPE, batch_size=1))),
        "checkpoint": error_of(InvalidInputError, lambda: train(checkpoint=broken)),
        "log": error_of(InvalidInputError, lambda: train(log_dir=broken)),
        "outputs": error_of(DivergenceError, lambda: train(model=overflowing)),
        "divergence": error_of(
            DivergenceError,
            lambda: train(
                lambda z, _: z.sum() * float("nan"), recipe=replace(RECIPE, alpha=(), batch_size=N)
            ),
        ),
    }


def batch_norm():
    """Return the weights of a model with batch norm, which depend on the shares."""
    X, noisy, _ = images()
    recipe = replace(RECIPE, epochs=2, sieve=Sieve(start=0.5, augment=Augment()))
    return train(X=X, y=noisy, model=small_net(), recipe=recipe)["weights"]


def resumed_with_draws(rank, folder):
    """Return weights of an interrupted and of a whole run. Each process draws its own dropout and peers."""
    X, y = features()
    weights = []
    for name, epochs in (("whole", None), ("stopped", 2), ("stopped", None)):
        model = nn.Sequential(net(), nn.Dropout(0.3))
        seed = rank if name == "whole" or epochs else 7
        torch.manual_seed(seed)
        loss = PeerLoss(peers="sampled", generator=torch.Generator().manual_seed(seed))

        def stop(module, _, epochs=epochs, counted=[0]):  # noqa: B006 (counts the calls)
            counted[0] += module.training
            if epochs and counted[0] > epochs * (N // RECIPE.batch_size):
                raise KeyboardInterrupt

        model.register_forward_pre_hook(stop)
        try:
            result = train(loss, X=X, y=y, model=model, checkpoint=folder / f"{name}.pt")
            weights.append(result["weights"]["last"])
        except KeyboardInterrupt:
            continue
    return weights


def main(folder):
    distributed.init_process_group("gloo")
    rank = distributed.get_rank()
    results = {name: job() for name, job in {**EXACT, **ROUNDED}.items()}
    results["logged"] = train(log_dir=folder / "log", checkpoint=folder / "run.pt", progress=True)
    with tempfile.TemporaryDirectory() as own:  # a path that each process has for itself
        results["errors"] = errors(rank, Path(own))
    results["batch norm"] = batch_norm()
    results["draws"] = resumed_with_draws(rank, folder)
    torch.save(results, folder / f"{rank}.pt")
    distributed.destroy_process_group()


def train_for_long(folder, *, hold=False):
    """Train to the end, or until the sixth epoch, to ``hold`` there; with a folder, write a checkpoint."""
    recipe = replace(RECIPE, epochs=20, sieve=replace(SIEVE, start=0.1))
    model = hold_after(net(), 5 * (N // RECIPE.batch_size) + 3) if hold else net()
    return train(model=model, recipe=recipe, checkpoint=folder and folder / "run.pt")["weights"]


def main_for_long(folder, *, hold=False):
    distributed.init_process_group("gloo")
    (folder / f"{distributed.get_rank()}.pid").write_text(str(os.getpid()))
    weights = train_for_long(folder, hold=hold)
    if distributed.get_rank() == 0:
        torch.save(weights, folder / "weights.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    jobs = {"all": main, "long": main_for_long, "held": partial(main_for_long, hold=True)}
    jobs[sys.argv[1]](Path(sys.argv[2]))

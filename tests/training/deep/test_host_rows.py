"""Inputs that stay in host memory or on disk: the results of inputs on the device, with little memory."""

import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import Dataset, IterableDataset, TensorDataset

from peerloss import PeerLoss
from peerloss.exceptions import InvalidInputError
from peerloss.models import MLP
from peerloss.training import Augment, Growth, Sieve, predict_logits, train_deep
from peerloss.training.deep import _host_rows, _inputs
from peerloss.training.deep._deep_run import Run
from peerloss.training.deep._host_rows import BATCHES_AHEAD, LOADED_ROWS, HostRows
from peerloss.training.deep._inputs import open_inputs
from tests.training.deep.toy import RECIPE, N, have_equal_tensors, images, small_encoder, small_net, tokens

CPU = torch.device("cpu")
STRONG = Augment(crop=2, cutout=2, affine=20.0, colour=0.4, share=0.5, random_changes=1)
SIEVE = Sieve(start=0.3, refresh_every=1, augment=STRONG)
RECIPES = {
    "crops": RECIPE,
    "no crops": replace(RECIPE, augment=Augment(crop=0, flip=False)),
    "strong": replace(RECIPE, augment=STRONG),
    "mixup": replace(RECIPE, epochs=4, sieve=replace(SIEVE, mixup=True)),
    "growth": replace(RECIPE, epochs=4, sieve=replace(SIEVE, growth=Growth())),
}


class Rows(Dataset):
    """A dataset that records which rows were read."""

    def __init__(self, inputs):
        self.inputs, self.read = inputs, []

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, index):
        self.read.append(index)
        return self.inputs[index]


class ManyRows(Rows):
    """A dataset that reads several rows at once."""

    def __getitems__(self, indices):
        self.read.append(tuple(indices))
        return list(self.inputs[indices])


def mapped(array, folder):
    """Return the array as a file that is mapped into memory and cannot be written."""
    np.save(folder / "X.npy", array)
    return np.load(folder / "X.npy", mmap_mode="r")


def weights(X, y, recipe=RECIPE, model=None, **options):
    model = model or small_net()
    return train_deep(model, PeerLoss(), X, y, recipe=recipe, device="cpu", **options).weights


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_images_in_a_file_train_as_images_on_the_device(recipe, tmp_path):
    """The random numbers are the same, so on the CPU all weights are equal."""
    X, noisy, _ = images()
    labels = np.where(np.arange(N) % 5 == 0, -1, noisy)
    expected = weights(X, labels, recipe, validation=(X, noisy), data_on_device=True)
    file = mapped(X, tmp_path)
    found = weights(file, labels, recipe, validation=(file, noisy), data_on_device=False)
    assert found.keys() == expected.keys()
    assert all(have_equal_tensors(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("kind", [Rows, ManyRows])
@pytest.mark.parametrize("data_on_device", [True, False, "auto"])
def test_a_dataset_trains_as_an_array(kind, data_on_device):
    """A dataset returns one input per index. On the device each row is read once."""
    X, noisy, _ = images()
    data = kind(X)
    found = weights(data, noisy, data_on_device=data_on_device)
    assert have_equal_tensors(found["last"], weights(X, noisy)["last"])
    singles = [row for read in data.read for row in (read if isinstance(read, tuple) else [read])]
    if data_on_device is False:
        assert len(singles) > 2 * N
    else:
        assert sorted(singles[1:]) == list(range(N))  # the first row is an example
    assert isinstance(data.read[-1], tuple) is (kind is ManyRows)


def test_mappings_train_from_host_memory():
    """Arrays by name, and a dataset of dictionaries, train as on the device; also in predictions."""
    X, noisy, _ = tokens()

    class Texts(Rows):
        def __len__(self):
            return N

        def __getitem__(self, index):
            return {name: torch.as_tensor(values[index]) for name, values in self.inputs.items()}

    recipe = replace(RECIPE, epochs=4, sieve=Sieve(start=0.5))
    runs = [
        weights(data, noisy, recipe, small_encoder(), validation=(data, noisy), data_on_device=on_device)
        for data, on_device in ((X, True), (X, False), (Texts(X), False))
    ]
    for found in runs[1:]:
        assert all(have_equal_tensors(found[name], runs[0][name]) for name in runs[0])
    model = small_encoder().eval()
    tensors = {name: torch.as_tensor(values) for name, values in X.items()}
    for data in (X, Texts(X)):
        assert torch.equal(predict_logits(model, data), predict_logits(model, tensors))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_features_get_the_precision_of_the_model(dtype, tmp_path):
    """Real numbers of a file are converted batch by batch."""
    X = np.random.default_rng(0).normal(size=(N, 4)).astype(dtype)
    y = (X[:, 0] > 0).astype(int)

    def run(inputs, on_device):
        torch.manual_seed(0)
        return weights(inputs, y, RECIPE, MLP(4, (8,), 2), data_on_device=on_device)["last"]

    file = mapped(X, tmp_path)
    assert have_equal_tensors(run(file, False), run(X, True))
    model = MLP(4, (8,), 2).eval()
    assert torch.equal(predict_logits(model, file), predict_logits(model, torch.as_tensor(X).float()))


@pytest.mark.parametrize("data_on_device", [True, False])
@pytest.mark.parametrize("X", [images()[0][..., ::-1], images()[0].astype(">i4").reshape(N, -1)])
def test_memory_that_torch_cannot_share_is_copied(X, data_on_device):
    """Negative strides, as of images with reversed channels, and the byte order of another machine."""
    opened = open_inputs(X, "X", None, CPU, on_device=data_on_device)
    (rows,) = opened.batches(torch.arange(N), N)
    assert rows.tolist() == X.tolist()


@pytest.mark.parametrize("X", [np.zeros((0, 4)), torch.zeros(0, 4), {"X": torch.zeros(0, 4)}])
def test_empty_inputs_are_refused(X):
    """In predictions, and in trainings wherever the inputs are kept."""
    model = MLP(4, (8,), 3)
    with pytest.raises(InvalidInputError, match="is empty; pass at least one row"):
        predict_logits(model, X)
    with pytest.raises(InvalidInputError, match="is empty; pass at least one row"):
        weights(X, np.zeros(0, int), model=model, data_on_device=False)


def test_inputs_are_kept_on_the_device_if_they_fit(monkeypatch):
    """They and two copies must fit into the memory; the setting overrides this."""
    X, noisy, _ = images()

    def is_on_host(data, **options):
        return isinstance(Run(small_net(), PeerLoss(), data, noisy, RECIPE, CPU, **options).X, HostRows)

    for memory, on_host in ((3 * X.nbytes, False), (3 * X.nbytes - 1, True)):
        monkeypatch.setattr(_inputs, "available_memory", lambda _, memory=memory: float(memory))
        for data in (X, torch.as_tensor(X), Rows(X)):
            assert is_on_host(data) is on_host
            assert is_on_host(data, data_on_device=False)
            assert not is_on_host(data, data_on_device=True)


class LargestTensor(TorchDispatchMode):
    """Records the largest number of elements of any tensor that an operation returns."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, tuple | list) else [result]:
            if isinstance(tensor, torch.Tensor):
                self.largest = max(self.largest, tensor.numel())
        return result


@pytest.mark.parametrize("sieve", [None, Sieve(start=0.5, augment=Augment())], ids=["loss", "sieve"])
def test_only_a_few_batches_are_in_memory(sieve):
    """Rows are read at most a few batches before they are used, and no tensor is as large as the data."""
    X, _, _ = images()
    X = np.concatenate([X] * 8)
    noisy = np.resize([0, 1, 2], len(X))
    batch, data, model = 16, Rows(X), small_net()
    ahead, used = [], 0

    def count(_, args):
        nonlocal used
        ahead.append(len(data.read) - used)
        used += len(args[0])

    recipe = replace(RECIPE, batch_size=batch, epochs=2, average=0.9, sieve=sieve)
    run = Run(model, PeerLoss(), data, noisy, recipe, CPU, data_on_device=False)
    data.read.clear()
    model.register_forward_pre_hook(count)
    with LargestTensor() as watch:
        while not run.finished:
            run.train_epoch()
    # Predictions of the sieve have batches four times as large.
    largest_batch = batch if sieve is None else 4 * batch
    assert max(ahead) <= (BATCHES_AHEAD + 1) * largest_batch
    widest = max(8, 3) * 8 * 8  # channels of the network, and of the images
    assert watch.largest <= largest_batch * widest < X[0].size * len(X) / 2


@pytest.mark.cuda
def test_batches_on_a_gpu_are_those_of_data_on_the_gpu():
    """Pinned memory and copies that do not wait give the same batches and predictions."""
    X, noisy, _ = images()
    X = np.concatenate([X] * 20)
    noisy = np.resize(noisy, len(X))
    gpu, model = torch.device("cuda"), small_net()
    device, host = (
        Run(model, PeerLoss(), X, noisy, RECIPE, gpu, data_on_device=on_device) for on_device in (True, False)
    )
    for one, other in zip(
        device.batches.of_epoch(device._epoch(None)), host.batches.of_epoch(host._epoch(None)), strict=True
    ):
        assert torch.equal(one[0], other[0])
        assert torch.equal(one[1], other[1])
    plain = torch.as_tensor(X, device=gpu)
    torch.testing.assert_close(predict_logits(model.eval(), X), predict_logits(model, plain))


def test_an_error_of_the_dataset_ends_the_training_and_its_thread():
    """The error is that of the dataset, and no thread is left."""
    X, noisy, _ = images()

    class Broken(Rows):
        def __getitem__(self, index):
            if index == N - 1:
                raise OSError("the disk is gone")
            return super().__getitem__(index)

    with pytest.raises(OSError, match="the disk is gone"):
        weights(Broken(X), noisy, data_on_device=False)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("peerloss-read-ahead")]


class Endless(IterableDataset):
    """A dataset without indices."""

    def __iter__(self):
        return iter([])


X_IMAGES = torch.as_tensor(images()[0])
LATE_NAN = np.where(np.arange(N)[:, None] == N - 1, np.nan, np.ones((N, 4)))


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (
            TensorDataset(X_IMAGES, torch.zeros(N)),
            r"`X\[0\]` must be one input: .* got tuple. Labels are .* `y`",
        ),
        (Endless(), r"`X` must be a map-style dataset, with `__getitem__` and `__len__`.* got Endless"),
        (Rows([]), r"`X` must be a map-style dataset, .* that is not empty; got Rows"),
        (
            Rows([np.zeros((8 + i % 2, 8, 3), np.uint8) for i in range(N)]),
            r"`X` must return inputs of equal shape, .* Pad or resize them in the dataset",
        ),
        (
            Rows(X_IMAGES.permute(0, 3, 1, 2)),
            r"`X` of type uint8 must be images .* channels first",
        ),
        (Rows(X_IMAGES[1:]), "`X` and `y` must be equally long"),
        (LATE_NAN, "`X` must be finite; found NaN or infinity"),
        (Rows(LATE_NAN), "`X` must be finite; found NaN or infinity"),
    ],
    ids=["tuples", "iterable", "empty", "shapes", "channels first", "too few", "NaN", "NaN in dataset"],
)
def test_invalid_data_are_refused(X, message):
    """The message says what a dataset must return."""
    model = MLP(4, (8,), 3) if "finite" in message else small_net()
    with pytest.raises(InvalidInputError, match=message):
        weights(X, images()[1], model=model, data_on_device=False)


@pytest.mark.parametrize(
    ("last", "data_on_device", "message"),
    [
        (torch.ones(1).long(), True, r"shape and dtype, .*torch.int64 \(4,\).* has .*torch.int64 \(1,\)"),
        (torch.ones(1).long(), False, "shape, with the same names"),  # of one batch, which cannot be stacked
        (torch.ones(4), True, r"shape and dtype, .*torch.int64 \(4,\).* has .*torch.float32 \(4,\)"),
        (torch.ones(4), False, r"shape and dtype, .*torch.int64 \(4,\).* has .*torch.float32 \(4,\)"),
    ],
    ids=["shape", "shape on the host", "dtype", "dtype on the host"],
)
def test_rows_of_another_form_are_refused(last, data_on_device, message):
    """They would be repeated or rounded to fit the first row, without a word."""
    first = torch.ones(4).long()
    data = Rows([first] * LOADED_ROWS + [last] * LOADED_ROWS)
    model = nn.Sequential(nn.Embedding(2, 3), nn.Flatten(), nn.Linear(12, 3))
    recipe = replace(RECIPE, batch_size=1)
    with pytest.raises(InvalidInputError, match=f"`X` must return inputs of equal {message}"):
        weights(data, np.arange(len(data)) % 3, recipe, model, data_on_device=data_on_device)


@pytest.mark.parametrize(
    "row", [{"words": torch.ones(4), "text": "good"}, {"text": {"words": torch.ones(4)}}, {0: torch.ones(4)}]
)
def test_dictionaries_of_other_things_are_refused(row):
    """A text that a dataset returns with its tokens is not an argument of the model."""
    message = r"`X\[0\]` must have tensors .* by the names .* got \w+ under .* leave out what the model does"
    with pytest.raises(InvalidInputError, match=message):
        weights(Rows([row] * N), images()[1])


def test_the_order_of_names_does_not_matter(monkeypatch):
    """Arrays of the same shape are not exchanged if a dataset returns them in another order."""
    monkeypatch.setattr(_host_rows, "LOADED_ROWS", 16)
    pair = {"first": torch.zeros(2), "second": torch.ones(2)}
    data = Rows([pair] * 16 + [dict(reversed(pair.items()))] * 16)
    loaded = open_inputs(data, "X", None, CPU, on_device=True).inputs
    assert (loaded["first"] == 0).all()
    assert (loaded["second"] == 1).all()


def test_other_settings_are_refused():
    """``data_on_device`` is a flag or "auto"."""
    X, noisy, _ = images()
    with pytest.raises(
        InvalidInputError, match="`data_on_device` must be True, False or 'auto'; got 'never'"
    ):
        weights(X, noisy, data_on_device="never")


def test_a_training_resumes_from_another_place(tmp_path):
    """Where inputs are kept is not part of a checkpoint: a run on the device continues in host memory."""
    X, noisy, _ = images()
    path = tmp_path / "run.pt"
    first = weights(X, noisy, checkpoint=path, data_on_device=True)
    again = weights(mapped(X, tmp_path), noisy, checkpoint=path, data_on_device=False, model=small_net(5))
    assert have_equal_tensors(first["last"], again["last"])

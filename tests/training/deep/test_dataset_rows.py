"""Datasets whose items have unusual forms: what torch can represent is read, the rest is refused."""

from collections import UserDict

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

from peerloss import PeerLoss
from peerloss.exceptions import InvalidInputError
from peerloss.training import DeepRecipe, train_deep
from tests.training.deep.toy import have_equal_tensors

N = 64
RNG = np.random.default_rng(0)
Y = RNG.integers(3, size=N)
X = RNG.normal(size=(N, 5)) + np.eye(3, 5)[Y]
RECIPE = DeepRecipe(epochs=2, batch_size=16, learning_rate=0.05)


class Items(Dataset):
    """A dataset whose items are computed by a function."""

    def __init__(self, item):
        self.item = item

    def __len__(self):
        return N

    def __getitem__(self, index):
        return self.item(index)


class Batches(Items):
    """A dataset that returns many items at once."""

    def __getitems__(self, indices):
        return self.item(indices)


class Net(nn.Linear):
    """A linear layer, called with a keyword if the inputs have names."""

    def __init__(self):
        torch.manual_seed(0)
        super().__init__(5, 3)


def train(inputs, data_on_device):
    options = {"device": "cpu", "data_on_device": data_on_device}
    return train_deep(Net(), PeerLoss(), inputs, Y, recipe=RECIPE, **options).weights["last"]


def read_only(row):
    row = row.copy()
    row.flags.writeable = False
    return row


FORMS = {
    "other byte order": lambda i: X[i].astype(">f8"),
    "negative strides": lambda i: np.ascontiguousarray(X[i][::-1])[::-1],
    "read-only": lambda i: read_only(X[i]),
    "mapping": lambda i: UserDict(input=X[i]),  # as the tokenizers of Hugging Face return
    "gradient": lambda i: torch.tensor(X[i], requires_grad=True),
}


@pytest.mark.parametrize("data_on_device", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_items_of_any_form_train_as_an_array(form, data_on_device):
    """Arrays whose memory torch cannot share are copied, mappings are dictionaries, gradients are cut off."""
    assert have_equal_tensors(train(Items(FORMS[form]), data_on_device), train(X, True))


@pytest.mark.parametrize("data_on_device", [True, False])
@pytest.mark.parametrize(
    ("data", "message"),
    [
        (Items(lambda _: {}), r"`X\[0\]` must be one input: .* got an empty dict"),
        (Items(lambda i: X[i] if i != 9 else None), r"`X\[9\]` must be one input: .* got NoneType"),
        (Items(lambda i: {"input": X[i].tolist()}), r"got list under 'input'. Convert lists to tensors"),
        (Items(lambda i: X[i].astype(object)), r"`X\[0\]` must be an array of numbers .* dtype object"),
        (Batches(lambda i: list(X[i])[:15]), r"`X.__getitems__` must return a list with .* of length 15 for"),
        (Batches(lambda i: {"input": X[i]}), r"`X.__getitems__` must return a list .* got dict"),
        (Batches(lambda i: (X[j] for j in i)), r"`X.__getitems__` must return a list .* got generator"),
        (Items(lambda i: 10.0 ** (300 * (i == 9)) * X[i]), r"`X` must be in the range of torch.float32"),
    ],
)
def test_items_that_cannot_be_read_are_refused(data, message, data_on_device):
    """The message names the item or the method, and says what to return."""
    with pytest.raises(InvalidInputError, match=message):
        train(data, data_on_device)


@pytest.mark.skipif(np.dtype("longdouble").itemsize == 8, reason="this system has no longer numbers")
@pytest.mark.parametrize("data_on_device", [True, False])
def test_numbers_that_torch_does_not_have_are_refused(data_on_device):
    """Those of more than 64 bits, with the remedy."""
    with pytest.raises(InvalidInputError, match=r"at most 64 bits.* Use `X.astype\('float64'\)`"):
        train(X.astype("longdouble"), data_on_device)


def test_rows_without_numbers_have_a_fingerprint(tmp_path):
    """A model that ignores its inputs can be trained from host memory, and resumed."""

    class Bias(nn.Module):
        def __init__(self):
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(3))

        def forward(self, rows):
            return self.bias.expand(len(rows), 3)

    options = {"recipe": RECIPE, "device": "cpu", "data_on_device": False, "checkpoint": tmp_path / "run.pt"}
    found = [train_deep(Bias(), PeerLoss(), X[:, :0], Y, **options).weights["last"] for _ in range(2)]
    assert have_equal_tensors(*found)

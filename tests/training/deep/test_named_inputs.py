"""Inputs that are mappings of names to arrays, as the tokens of a text are."""

import os
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from peerloss import PeerLoss, PlainLoss
from peerloss.crowd import aggregate_labels
from peerloss.datasets.real_noise import find_real_noise, load_real_noise
from peerloss.exceptions import InvalidInputError
from peerloss.training import DeepRecipe, Growth, Sieve, predict_logits, predict_mirrored, train_deep
from peerloss.training.deep import _deep_run
from tests.training.deep.toy import LENGTH, WORDS, Encoder, N, have_equal_tensors, small_encoder, tokens

RECIPE = DeepRecipe(
    epochs=10,
    batch_size=32,
    optimizer="adamw",
    learning_rate=5e-3,
    alpha=((0.2, 0.0), (0.5, 1.0)),
    average=0.9,
)
SIEVES = {
    "no sieve": None,
    "fixed": Sieve(start=0.5, refresh_every=0),
    "refreshed": Sieve(start=0.3, refresh_every=1),
}


def as_tensors(X):
    return {name: torch.as_tensor(values) for name, values in X.items()}


@pytest.mark.parametrize("sieve", SIEVES.values(), ids=SIEVES)
def test_an_encoder_learns_tokens_better_than_its_labels(sieve):
    """With 30 % wrong labels its predictions are right far more often than the labels."""
    X, noisy, clean = tokens()
    model = small_encoder()
    result = train_deep(model, PeerLoss(), X, noisy, recipe=replace(RECIPE, sieve=sieve), device="cpu")
    logits = predict_logits(model, as_tensors(X))
    assert logits.shape == (N, 3)
    assert (noisy == clean).mean() < 0.75
    assert (logits.argmax(dim=1).numpy() == clean).mean() > 0.9
    assert ("before_sieve" in result.weights) is (sieve is not None)


def test_many_rows_and_classes():
    """10,000 rows of eight classes, as in LabelMe, in two epochs."""
    X, noisy, clean = tokens(n=10_000, n_classes=8)
    model = small_encoder(n_classes=8)
    recipe = replace(RECIPE, epochs=2, batch_size=250, alpha=(), sieve=Sieve(start=0.5))
    train_deep(model, PlainLoss(), X, noisy, recipe=recipe, validation=(X, noisy), device="cpu")
    predicted = predict_logits(model, as_tensors(X)).argmax(dim=1).numpy()
    assert (noisy == clean).mean() < 0.75
    assert (predicted == clean).mean() > 0.9


def hashed(texts, size=500, length=24):
    """Return texts as hashed words: a sum of character codes, which is the same in every process."""
    ids = np.zeros((len(texts), length), dtype=np.int64)
    for row, text in enumerate(texts):
        words = text.lower().split()[:length]
        ids[row, : len(words)] = [1 + sum(map(ord, word)) % (size - 1) for word in words]
    mask = ids > 0
    mask[:, 0] = True  # an empty text has one padding token
    return {"input_ids": ids, "attention_mask": mask.astype(np.int64)}


def test_comments_labelled_by_rules():
    """Comments with the labels of keyword rules, some without a label: the sieve trains on all of them."""
    try:
        find_real_noise("youtube", os.environ.get("PEERLOSS_DATA"))
    except InvalidInputError as error:
        pytest.skip(str(error))
    transformers = pytest.importorskip("transformers")
    data = load_real_noise("youtube")
    votes = aggregate_labels(data.reports)["majority"].reindex(data.gold.index, fill_value=-1).to_numpy()
    X = hashed(data.features["text"])
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=500, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    model = transformers.BertForSequenceClassification(config)
    recipe = replace(RECIPE, epochs=4, batch_size=64, sieve=Sieve(start=0.5, refresh_every=1))
    result = train_deep(model, PeerLoss(), X, votes, recipe=recipe, device="cpu")
    assert result.history[-1]["loss"] < result.history[0]["loss"]
    assert 0.5 < result.history[-1]["kept"] <= 1.0
    assert predict_logits(model, as_tensors(X)).shape == (len(votes), 2)


class Table(nn.Module):
    """A linear model that checks the names of its arguments, and whose kind of output is given."""

    def __init__(self, output=lambda logits: logits):
        super().__init__()
        self.linear, self.output = nn.Linear(LENGTH, 3), output
        nn.init.zeros_(self.linear.weight)

    def forward(self, **inputs):
        """Return the output for the logits."""
        assert list(inputs) == ["input_ids", "attention_mask"]
        return self.output(self.linear(inputs["input_ids"].float() / WORDS))


def test_a_mapping_is_passed_as_keywords_and_the_output_may_hold_the_logits():
    """A tensor, an object with ``logits`` and a mapping with ``logits`` train alike."""
    X, noisy, _ = tokens()
    weights = []
    for output in (lambda z: z, lambda z: SimpleNamespace(logits=z), lambda z: {"logits": z, "loss": None}):
        torch.manual_seed(0)
        recipe = replace(RECIPE, epochs=2, sieve=Sieve(start=0.5))
        result = train_deep(Table(output), PeerLoss(), X, noisy, recipe=recipe, validation=(X, noisy))
        weights.append(result.weights["settled"])
    assert all(have_equal_tensors(weights[0], other) for other in weights)


def test_another_output_is_refused():
    """The message names the type."""
    X, noisy, _ = tokens()
    with pytest.raises(InvalidInputError, match=r"`model` must return a tensor of logits.*got tuple"):
        train_deep(Table(lambda z: (z, None)), PeerLoss(), X, noisy, recipe=RECIPE)


def test_batch_statistics_are_recomputed_for_mappings():
    """A model with batch norm and keywords gets settled statistics."""

    class Normed(Table):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(LENGTH)

        def forward(self, **inputs):
            return self.linear(self.norm(inputs["input_ids"].float()))

    X, noisy, _ = tokens()
    recipe = replace(RECIPE, epochs=2, sieve=Sieve(start=0.5))
    weights = train_deep(Normed(), PeerLoss(), X, noisy, recipe=recipe).weights
    assert not torch.equal(weights["settled"]["norm.running_mean"], weights["average"]["norm.running_mean"])


@pytest.mark.parametrize("sieve", SIEVES.values(), ids=SIEVES)
def test_a_resumed_training_on_a_mapping_equals_an_uninterrupted_one(sieve, tmp_path, monkeypatch):
    """After an interruption in any epoch, also with dropout, all weights are the same."""
    X, noisy, _ = tokens()
    labels = np.where(np.arange(N) % 5 == 0, -1, noisy)
    recipe = replace(RECIPE, epochs=4, sieve=sieve)

    def run(checkpoint):
        return train_deep(
            small_encoder(),
            PeerLoss(),
            X,
            labels,
            recipe=recipe,
            validation=(X, noisy),
            checkpoint=checkpoint,
        ).weights

    whole = run(None)
    original = _deep_run.Run.train_epoch
    for stop in range(1, recipe.epochs):

        def interrupt(self, stop=stop):
            if self.epoch == stop:
                raise KeyboardInterrupt
            return original(self)

        monkeypatch.setattr(_deep_run.Run, "train_epoch", interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / f"{stop}.pt")
        monkeypatch.setattr(_deep_run.Run, "train_epoch", original)
        resumed = run(tmp_path / f"{stop}.pt")
        assert all(have_equal_tensors(resumed[name], whole[name]) for name in whole)


def test_checkpoints_of_other_arrays_in_the_mapping_are_refused(tmp_path):
    """Other values under one name are other data, and so are the same values under another name."""
    X, noisy, _ = tokens()
    recipe = replace(RECIPE, epochs=1)

    class Renamed(Encoder):
        def forward(self, **inputs):
            return super().forward(*inputs.values())

    def run(inputs):
        return train_deep(Renamed(), PeerLoss(), inputs, noisy, recipe=recipe, checkpoint=tmp_path / "run.pt")

    run(X)
    ids, mask = X.values()
    for other in ({"input_ids": ids, "attention_mask": np.ones_like(mask)}, {"words": ids, "mask": mask}):
        with pytest.raises(InvalidInputError, match="training run with fingerprint of X = "):
            run(other)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"X": {}}, r"`X` must have the names of the model's arguments as keys.*got \[\]"),
        ({"X": {0: np.zeros((N, 2))}}, r"`X` must have the names .* such as 'input_ids'; got \[0\]"),
        (
            {"X": {"input_ids": np.zeros((N, 2)), "attention_mask": np.zeros((N - 1, 2))}},
            r"`X\['input_ids'\]` and `X\['attention_mask'\]` must be equally long",
        ),
        ({"X": {"input_ids": np.full((N, 2), np.nan)}}, r"`X\['input_ids'\]` must be finite"),
        ({"X": {"input_ids": 3}}, r"`X\['input_ids'\]` must have one entry per row; got a single number"),
        ({"X": {"input_ids": ["a text"] * N}}, r"`X\['input_ids'\]` must be an array or tensor of numbers"),
        ({"X": {"input_ids": np.zeros((N - 1, 2))}}, "`X` and `y` must be equally long"),
        (
            {"recipe": replace(RECIPE, sieve=Sieve(mixup=True))},
            "`mixup` needs real-valued inputs; got a mapping with input_ids, attention_mask. Use mixup=False",
        ),
        (
            {"recipe": replace(RECIPE, sieve=Sieve(growth=Growth()))},
            "`growth` mixes inputs.* got a mapping with input_ids, attention_mask. Use growth=None",
        ),
    ],
)
def test_invalid_mappings_are_refused(options, message):
    """Before training; the message names the entry."""
    X, noisy, _ = tokens()
    with pytest.raises(InvalidInputError, match=message):
        train_deep(small_encoder(), PeerLoss(), **{"X": X, "y": noisy, "recipe": RECIPE} | options)


def test_mappings_are_predicted_once_by_the_mirrored_prediction():
    """There are no mirror images of tokens, so the probabilities are those of the logits."""
    X, _, _ = tokens()
    model = small_encoder().eval()
    logits = predict_logits(model, as_tensors(X), batch_size=100)
    torch.testing.assert_close(predict_mirrored(model, as_tensors(X)), torch.softmax(logits, dim=1))
    torch.testing.assert_close(logits, predict_logits(model, as_tensors(X)))


def test_predictions_refuse_arrays_of_different_length():
    """The number of rows is not that of the first one."""
    model = small_encoder().eval()
    X = {"input_ids": torch.zeros(3, LENGTH).long(), "attention_mask": torch.ones(4, LENGTH)}
    with pytest.raises(
        InvalidInputError, match=r"`X\['input_ids'\]` and `X\['attention_mask'\]` must be equ"
    ):
        predict_logits(model, X)

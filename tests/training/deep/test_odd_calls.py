"""Models, losses, inputs and settings of unusual kinds: they work, or a message says what to change."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from peerloss import BackwardLoss, ForwardLoss, NoiseModel, PeerLoss
from peerloss.exceptions import InvalidInputError
from peerloss.models import Ensemble
from peerloss.training import Augment, DeepRecipe, Growth, Sieve, predict_logits, predict_mirrored, train_deep
from peerloss.training.deep._augment import distort, draw_moves, mix_pairs
from tests.training.deep.toy import RECIPE, have_equal_tensors, images, small_net

QUICK = DeepRecipe(epochs=4, batch_size=20, learning_rate=0.05)
SIEVES = {
    "fixed": Sieve(start=0.5, refresh_every=0),
    "refreshed": Sieve(start=0.5, refresh_every=1),
    "grown": Sieve(start=0.5, refresh_every=1, growth=Growth()),
}


def table(n=100, k=3):
    """Return features of k classes in float32, and their labels."""
    rng = np.random.default_rng(0)
    y = rng.integers(k, size=n)
    return (rng.normal(size=(n, 4)) + 2.0 * np.eye(4)[y]).astype(np.float32), y


def linear(k=3, seed=0):
    torch.manual_seed(seed)
    return nn.Linear(4, k)


class Masked(nn.Module):
    """A linear model whose last class has the logit −∞."""

    def __init__(self):
        super().__init__()
        self.layer = linear(4)

    def forward(self, x):
        """Return logits of four classes."""
        return self.layer(x).masked_fill(torch.arange(4) == 3, -torch.inf)


@pytest.mark.parametrize("sieve", SIEVES.values(), ids=SIEVES)
def test_a_sieve_treats_ignored_labels_as_missing(sieve):
    """The weights are those of a training in which these labels are −1, whatever their code."""
    X, y = table()
    results = []
    for code, loss in ((-1, PeerLoss()), (9, PeerLoss(ignore_index=9)), (2, PeerLoss(ignore_index=2))):
        labels = np.where(y == 2, code, y)
        result = train_deep(linear(), loss, X, labels, recipe=replace(QUICK, sieve=sieve), device="cpu")
        results.append(result.weights["last"])
    assert have_equal_tensors(results[0], results[1])
    assert have_equal_tensors(results[0], results[2])


@pytest.mark.parametrize("sieve", SIEVES.values(), ids=SIEVES)
def test_a_sieve_works_with_masked_classes(sieve):
    """A class with the logit −∞ has an infinite loss, which does not count if its target is 0."""
    X, y = table()
    result = train_deep(Masked(), PeerLoss(), X, y, recipe=replace(QUICK, sieve=sieve), device="cpu")
    assert all(np.isfinite(record["loss"]) for record in result.history)


@pytest.mark.parametrize("sieve", SIEVES.values(), ids=SIEVES)
def test_labels_without_an_output_are_refused_if_the_sieve_starts_at_once(sieve):
    """The first phase, which checks them otherwise, has no epochs."""
    X, y = table()
    with pytest.raises(InvalidInputError, match=r"`y` must hold labels in 0\.\.1.*found 2"):
        train_deep(linear(2), PeerLoss(), X, y, recipe=replace(QUICK, sieve=replace(sieve, start=0.0)))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("growth", [None, Growth(cut=0.5)])
def test_images_and_models_of_other_precision(dtype, growth):
    """Images become numbers of the precision of the model, in training and in prediction."""
    X, noisy, _ = images()
    augment = Augment(cutout=2, affine=10.0, colour=0.2, random_changes=1)
    sieve = Sieve(start=0.5, refresh_every=1, augment=augment, growth=growth)
    model = small_net().to(dtype)
    recipe = replace(RECIPE, epochs=2, alpha=(), average=None, sieve=sieve)
    train_deep(model, PeerLoss(), X, noisy, recipe=recipe, device="cpu")
    assert predict_logits(model, X).isfinite().all()
    torch.testing.assert_close(predict_logits(model, torch.as_tensor(X)), predict_logits(model, X))
    assert predict_mirrored(model, X).isfinite().all()


@pytest.mark.parametrize("settings", [{"mixup": True}, {"growth": Growth()}])
def test_features_in_half_precision_can_be_mixed(settings):
    """The shares are converted to the precision of the features."""
    X, y = table()
    recipe = replace(QUICK, average=None, sieve=Sieve(start=0.5, refresh_every=1, **settings))
    model = linear().bfloat16()
    train_deep(model, PeerLoss(), X, y, recipe=recipe, device="cpu")
    assert all(weight.isfinite().all() for weight in model.parameters())


def test_the_default_dtype_does_not_change_augmentation():
    """The random numbers and the images are those of float32 under any default."""
    augment = Augment(cutout=2, affine=10.0, colour=0.2, random_changes=2, share=0.5)
    inputs = torch.randn(20, 3, 8, 8, generator=torch.Generator().manual_seed(0))

    def changed():
        generator = torch.Generator().manual_seed(1)
        moves = draw_moves(20, augment, device=torch.device("cpu"), generator=generator)
        distorted = distort(inputs, augment, generator=generator)
        targets = torch.eye(20, dtype=torch.float32)
        return *moves, *mix_pairs(distorted, targets, generator=generator, beta=4, cut=0.5)

    expected = changed()
    torch.set_default_dtype(torch.float64)
    try:
        found = changed()
    finally:
        torch.set_default_dtype(torch.float32)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_predictions_accept_what_training_accepts():
    """Tensors of another precision are converted, and inputs that are not finite are refused."""
    X, _ = table()
    model = linear()
    expected = predict_logits(model, X)
    torch.testing.assert_close(predict_logits(model, torch.as_tensor(X).double()), expected)
    with pytest.raises(InvalidInputError, match="`X` must be finite"):
        predict_logits(model, torch.full((2, 4), torch.nan))


def test_features_of_a_network_may_have_a_graph():
    """No gradient flows into inputs, so a graph behind them is not used."""
    X, y = table()
    features = linear(4)(torch.as_tensor(X))
    train_deep(linear(), PeerLoss(), features, y, recipe=QUICK, device="cpu")
    assert features.requires_grad


def test_predictions_leave_the_mode_and_the_statistics_of_a_model():
    """A model in training mode predicts as in evaluation mode; parts that were in that mode stay in it."""
    X, _, _ = images()
    model = small_net().train()
    model.features[1].eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    found = predict_logits(model, X)
    assert have_equal_tensors(model.state_dict(), before)
    assert [module.training for module in model.modules()] == modes
    torch.testing.assert_close(found, predict_logits(model.eval(), X))


@pytest.mark.parametrize("shape", [(), (1,)], ids=["(n,)", "(n, 1)"])
def test_an_ensemble_of_binary_models_averages_probabilities(shape):
    """One logit per row means two classes, with and without a second dimension."""
    x = torch.randn(7, 4)
    members = [
        nn.Sequential(linear(1, seed), nn.Flatten(0) if not shape else nn.Identity()) for seed in (0, 1)
    ]
    found = Ensemble(members).eval()(x)
    assert found.shape == (7, *shape)
    expected = torch.stack([torch.sigmoid(member(x)) for member in members]).mean(dim=0)
    torch.testing.assert_close(torch.sigmoid(found), expected)


def test_an_ensemble_averages_over_the_classes_of_positions():
    """Outputs (n, K, d) have their classes in the second dimension."""
    members = [nn.Conv1d(2, 3, 1) for _ in range(2)]
    x = torch.randn(4, 2, 5)
    expected = torch.stack([member(x).softmax(dim=1) for member in members]).mean(dim=0)
    torch.testing.assert_close(Ensemble(members).eval()(x).softmax(dim=1), expected)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (nn.Linear(4, 3), "must have at least one network, in a list; got Linear"),
        ([nn.Linear(4, 3), 3], "must have at least one network, in a list"),
        (
            [nn.Linear(4, 3), nn.Linear(4, 1)],
            r"the same outputs; got the shapes \(3, 3\), \(3, 1\)",
        ),
    ],
)
def test_members_that_do_not_fit_together_are_refused(members, message):
    """Instead of being broadcast to the same shape."""
    with pytest.raises(InvalidInputError, match=message):
        Ensemble(members).train()(torch.randn(6, 4))


SETTINGS = {
    "transition": [ForwardLoss(NoiseModel.uniform(3, rate)) for rate in (0.1, 0.4)],
    "backward": [BackwardLoss(NoiseModel.uniform(3, rate)) for rate in (0.1, 0.4)],
    "prior": [PeerLoss(noisy_prior=prior) for prior in ([0.2, 0.3, 0.5], [0.3, 0.3, 0.4])],
    "weight": [nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, w])) for w in (1.0, 2.0)],
    "smoothing": [nn.CrossEntropyLoss(label_smoothing=share) for share in (0.0, 0.1)],
}


@pytest.mark.parametrize("losses", SETTINGS.values(), ids=SETTINGS)
def test_a_checkpoint_of_a_loss_with_other_settings_is_refused(losses, tmp_path):
    """Its state would replace that of the loss that was passed."""
    X, y = table()
    path = tmp_path / "run.pt"
    first, second = losses
    train_deep(linear(), first, X, y, recipe=QUICK, checkpoint=path, device="cpu")
    with pytest.raises(InvalidInputError, match=r"belongs to a training run with (fingerprint of )?loss"):
        train_deep(linear(), second, X, y, recipe=QUICK, checkpoint=path, device="cpu")
    train_deep(linear(), first, X, y, recipe=QUICK, checkpoint=path, device="cpu")


def test_a_checkpoint_of_other_validation_rows_is_refused(tmp_path):
    """Their scores cannot be compared; validation may be added to a training without it, or left out."""
    X, y = table()
    path = tmp_path / "run.pt"

    def train(validation, epochs):
        recipe = replace(QUICK, epochs=4)
        return train_deep(
            linear(), PeerLoss(), X, y, recipe=recipe, checkpoint=path, device="cpu", validation=validation
        ).history[:epochs]

    train((X[:30], y[:30]), 4)
    for other in ((X[:30], (y[:30] + 1) % 3), (X[:20], y[:20]), (X[1:31], y[:30])):
        with pytest.raises(InvalidInputError, match="a training run with fingerprint of validation"):
            train(other, 4)
    assert len(train(None, 4)) == 4


def test_a_checkpoint_with_changed_bits_is_refused(tmp_path):
    """The file has checksums of its parts, which torch does not compare."""
    X, y = table()
    path = tmp_path / "run.pt"
    model = linear()
    train_deep(model, PeerLoss(), X, y, recipe=QUICK, checkpoint=path, device="cpu")
    content = bytearray(path.read_bytes())
    weights = model.weight.detach().numpy().tobytes()
    content[content.index(weights) + 3] ^= 0x40
    path.write_bytes(content)
    with pytest.raises(InvalidInputError, match="truncated or damaged"):
        train_deep(linear(), PeerLoss(), X, y, recipe=QUICK, checkpoint=path, device="cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"recipe": {"epochs": 3}}, "`recipe` must be a DeepRecipe"),
        ({"loss": "ce"}, "`loss` must be a function or module.*got 'ce'"),
        ({"loss": None}, "`loss` must be a function or module.*got None"),
        ({"loss": PeerLoss}, "`loss` must be a function or module.*got the class PeerLoss"),
        ({"model": nn.Linear}, r"`model` must be a torch.nn.Module; got the class Linear"),
        ({"model": abs}, r"`model` must be a torch.nn.Module"),
        ({"model": nn.Identity()}, "`model` must have weights that require gradients"),
        (
            {"model": nn.Linear(4, 3).requires_grad_(requires_grad=False)},
            "`model` must have weights",
        ),
        ({"checkpoint": 5}, "`checkpoint` must be a path"),
        ({"log_dir": 5}, "`log_dir` must be a path"),
        ({"X": torch.eye(100).to_sparse()}, "`X` must be a dense tensor.*got layout"),
        ({"X": torch.zeros(100, 4, dtype=torch.complex64)}, "`X` must be a dense tensor.*got dtype"),
    ],
)
def test_calls_that_cannot_train_are_refused(options, message):
    """Before anything is trained; the message names the argument."""
    X, y = table()
    given = {
        "model": linear(),
        "loss": PeerLoss(),
        "X": X,
        "y": y,
        "recipe": QUICK,
        "device": "cpu",
    } | options
    with pytest.raises(InvalidInputError, match=message):
        train_deep(given.pop("model"), given.pop("loss"), given.pop("X"), given.pop("y"), **given)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_training_without_gradients_is_refused(context):
    """Otherwise torch would say that a tensor has no gradient function."""
    X, y = table()
    with context(), pytest.raises(InvalidInputError, match=r"Call it outside of `torch\.no_grad\(\)`"):
        train_deep(linear(), PeerLoss(), X, y, recipe=QUICK, device="cpu")


@pytest.mark.parametrize("size", [0, -5, 1.5, "a"])
def test_the_batch_size_of_predictions_is_checked(size):
    """The message names the argument."""
    with pytest.raises(InvalidInputError, match="`batch_size` must be an integer of at least 1"):
        predict_logits(linear(), table()[0], batch_size=size)


def test_a_single_number_has_no_rows():
    """A tensor without dimensions is refused like an array."""
    with pytest.raises(InvalidInputError, match="`X` must have one entry per row; got a single number"):
        predict_logits(linear(), torch.tensor(1.0))


def test_shares_of_classes_must_be_above_zero():
    """A class that never occurs cannot be balanced."""
    with pytest.raises(InvalidInputError, match="`balance` must have a share above 0 for each class"):
        Sieve(balance=(0.5, 0.5, 0.0))


@pytest.mark.parametrize("value", ["x", float("nan"), None])
def test_the_alpha_of_the_score_is_checked(value):
    """When the recipe is made, not after the first epoch."""
    with pytest.raises(InvalidInputError, match="`scoring_alpha` must be a finite number"):
        DeepRecipe(scoring_alpha=value)

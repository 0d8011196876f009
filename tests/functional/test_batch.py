"""Validated batches: shapes, labels, ignored targets, reductions."""

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from peerloss.exceptions import InvalidInputError
from peerloss.functional import (
    backward_loss,
    dmi_loss,
    f_divergence_loss,
    forward_loss,
    peer_loss,
    plain_loss,
)
from peerloss.functional.batch import split_ignored

T3 = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
ROW_LOSSES = {
    "base": plain_loss,
    "peer": peer_loss,
    "sampled": lambda z, y, **kw: peer_loss(
        z, y, peers="sampled", generator=torch.Generator().manual_seed(0), **kw
    ),
    "backward": lambda z, y, **kw: backward_loss(z, y, T3, **kw),
    "forward": lambda z, y, **kw: forward_loss(z, y, T3, **kw),
}
ALL_LOSSES = {**ROW_LOSSES, "dmi": dmi_loss}


def example(n=6, k=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, k, generator=generator, dtype=torch.float64)
    return z, torch.randint(k, (n,), generator=generator)


@pytest.mark.parametrize("name", ALL_LOSSES)
@pytest.mark.parametrize(
    ("z", "y", "message"),
    [
        (torch.zeros(4, 3), torch.tensor([0, 1, 3, 0]), r"`target` must hold labels in 0\.\.2; found 3"),
        (torch.zeros(4, 3), torch.tensor([0, 1, -1, 0]), r"`target` must hold labels in 0\.\.2; found -1"),
        (torch.zeros(4, 3), torch.zeros(4), r"`target` must be an integer tensor.*target\.long"),
        (torch.zeros(4, 3), [0, 1, 2, 0], "`target` must be an integer tensor.*list"),
        (torch.zeros(4, 3), torch.zeros(3, dtype=torch.long), r"`target` must have shape \(4,\)"),
        (torch.zeros(4, 3), torch.zeros(4, 1, dtype=torch.long), r"`target` must have shape \(4,\)"),
        (torch.zeros(4, 3, 2), torch.zeros(4, dtype=torch.long), "`logits` must have shape"),
        (torch.full((4, 3), torch.nan), torch.zeros(4, dtype=torch.long), "`logits` must not hold NaN"),
        (
            torch.full((4, 3), torch.inf),
            torch.zeros(4, dtype=torch.long),
            r"`logits` must not hold NaN or \+inf",
        ),
        (
            torch.zeros(4, 3),
            torch.zeros(4, dtype=torch.long, device="meta"),
            "`target` must be on the device",
        ),
    ],
)
def test_bad_batches_are_refused_by_every_loss(name, z, y, message):
    """Wrong shapes, labels outside 0..K-1, NaN: the message names the argument and the value."""
    with pytest.raises(InvalidInputError, match=message):
        ALL_LOSSES[name](z, y)


def test_the_row_with_nan_is_named():
    """One bad row among many is found."""
    z, y = example()
    z[4, 1] = torch.nan
    with pytest.raises(InvalidInputError, match="row 4 is"):
        plain_loss(z, y)


def test_a_masked_class_is_legal():
    """−inf logits rule a class out, as with torch's cross entropy; the clip keeps the loss finite."""
    z, y = example()
    z[:, 2] = -torch.inf
    y = y % 2
    for loss in (plain_loss, peer_loss):
        assert torch.isfinite(loss(z, y))


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_none_averaged_is_mean_and_summed_is_sum(name):
    """Without weights and ignored targets the reductions agree."""
    loss, (z, y) = ROW_LOSSES[name], example()
    rows = loss(z, y, reduction="none")
    assert rows.shape == (6,)
    torch.testing.assert_close(rows.mean(), loss(z, y), rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(rows.sum(), loss(z, y, reduction="sum"), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_the_mean_divides_by_the_sum_of_the_targets_weights(name):
    """As torch's cross entropy does."""
    loss, (z, y) = ROW_LOSSES[name], example()
    weight = torch.tensor([0.5, 2.0, 1.0], dtype=z.dtype)
    rows = loss(z, y, weight=weight, reduction="none")
    torch.testing.assert_close(loss(z, y, weight=weight), rows.sum() / weight[y].sum())


@pytest.mark.parametrize("name", [name for name in ALL_LOSSES if name != "sampled"])
def test_ignored_rows_change_nothing(name):
    """A batch with ignored rows has the loss and the gradients of the batch without them."""
    loss, (z, y) = ALL_LOSSES[name], example()
    padded = torch.cat([torch.full((2, 3), 7.0, dtype=z.dtype), z]).requires_grad_()
    labels = torch.cat([torch.tensor([-100, -100]), y])
    short = z.clone().requires_grad_()
    with_ignored, without = loss(padded, labels), loss(short, y)
    torch.testing.assert_close(with_ignored, without)
    with_ignored.backward()
    without.backward()
    torch.testing.assert_close(padded.grad[2:], short.grad)
    assert not padded.grad[:2].any()


@pytest.mark.parametrize("name", ROW_LOSSES)
def test_ignored_rows_are_zero_without_reduction(name):
    """As torch's cross entropy does; any value may be the ignored one."""
    loss, (z, y) = ROW_LOSSES[name], example()
    y[0] = 2
    y[1:3] = 0
    rows = loss(z, y, ignore_index=2, reduction="none")
    assert (rows[y == 2] == 0).all()
    if name != "sampled":  # a row may be its own peer twice, and then its loss is 0
        assert (rows[y != 2] != 0).all()


@pytest.mark.parametrize("name", ["base", "peer", "backward", "forward", "dmi", "f_divergence"])
def test_a_batch_without_labels_has_loss_and_gradient_zero(name):
    """All targets ignored, or an empty batch: 0 instead of NaN."""
    loss = (ALL_LOSSES | {"f_divergence": f_divergence_loss})[name]
    for z, y in (
        (torch.randn(3, 3, requires_grad=True), torch.full((3,), -100)),
        (torch.zeros(0, 3, requires_grad=True), torch.zeros(0, dtype=torch.long)),
    ):
        value = loss(z, y)
        value.backward()
        assert value == 0
        assert not z.grad.any()


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.bool])
def test_any_integer_dtype_is_a_label(dtype):
    """Small integers and booleans are taken as class codes."""
    z, y = example(k=2)
    torch.testing.assert_close(peer_loss(z, y.to(dtype)), peer_loss(z, y))


@pytest.mark.parametrize("name", ALL_LOSSES)
def test_inputs_are_not_changed(name):
    """Neither logits nor targets are written to."""
    z, y = example()
    y[0] = -100
    kept = z.clone(), y.clone()
    ALL_LOSSES[name](z, y)
    assert torch.equal(z, kept[0])
    assert torch.equal(y, kept[1])


@pytest.mark.parametrize("name", ALL_LOSSES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_keeps_the_arithmetic_in_single_precision(name, dtype):
    """Inside an autocast region half-precision logits give the float32 loss."""
    z, y = example(n=64)
    half = z.to(dtype)
    with torch.autocast("cpu", dtype=dtype):
        inside = ALL_LOSSES[name](half, y)
    assert inside.dtype == torch.float32
    torch.testing.assert_close(inside, ALL_LOSSES[name](half.float(), y), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ROW_LOSSES)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduction": "average"}, "`reduction` must be one of 'none', 'mean', 'sum'; got 'average'"),
        ({"weight": torch.ones(2)}, "`weight` must have one entry for each of the 3 classes"),
        ({"weight": torch.tensor([1.0, -1.0, 1.0])}, "`weight` must be finite and non-negative"),
        ({"weight": torch.ones(3, 3)}, r"`weight` must have shape \(K,\)"),
    ],
)
def test_bad_options_are_named(name, options, message):
    """Every loss refuses invalid reductions and weights."""
    z, y = example()
    with pytest.raises(InvalidInputError, match=message):
        ROW_LOSSES[name](z, y, **options)


def test_weights_that_are_all_zero_give_zero():
    """The mean over rows without weight is 0, not NaN."""
    z, y = example()
    assert plain_loss(z, y, weight=torch.zeros(3)) == 0


def test_labels_of_a_batch_without_ignored_ones_are_not_compared():
    """Their range shows that none is ignored, so no mask is computed: class codes are the common case."""
    labels = torch.tensor([0, 2, 1])
    with profile(activities=[ProfilerActivity.CPU]) as record:
        y, valid = split_ignored(labels, 3, -100)
    assert y is labels
    assert valid is None
    assert "aten::ne" not in {event.key for event in record.key_averages()}
    assert split_ignored(torch.tensor([0, -100]), 3, -100)[1].tolist() == [True, False]

"""Wrong soft targets: located and refused, or NaN where values cannot be read."""

import pytest
import torch

from peerloss.exceptions import InvalidInputError
from peerloss.functional import peer_loss
from tests.functional.soft_examples import LINEAR, OTHERS, PRIOR, example


def test_rows_that_do_not_sum_to_one_are_nan_where_values_cannot_be_read():
    """In a compiled graph, as on CUDA, the loss of a wrong row is NaN; rows without a label stay excluded."""
    torch.compiler.reset()
    z, q, _ = example()
    q[1] *= 2.0
    q[2] = torch.nan
    compiled = torch.compile(peer_loss, backend="aot_eager", fullgraph=True)
    rows = compiled(z, q, noisy_prior=PRIOR, reduction="none")
    assert torch.isnan(rows).tolist() == [False, True, False, False, False, False]
    assert rows[2] == 0
    q[1] /= 2.0
    torch.testing.assert_close(compiled(z, q, noisy_prior=PRIOR), peer_loss(z, q, noisy_prior=PRIOR))


@pytest.mark.parametrize("name", [*LINEAR, *OTHERS])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q: q.index_fill(0, torch.tensor([3]), 0.5), r"sum to 1 in each row; row 3 sums to 1\.5"),
        (lambda q: q.index_fill(0, torch.tensor([3]), 0.0), "row 3 sums to 0. Divide votes"),
        (lambda q: q.index_fill(0, torch.tensor([2]), torch.inf), r"row 2 is \[inf, inf, inf\]"),
        (lambda q: torch.where(q == q[4, 0], torch.nan, q), r"row 4 is \[nan, .*a row of NaN has no label"),
        (lambda q: q[:, :2], r"class probabilities of shape \(6, 3\).*got \(6, 2\)"),
        (lambda q: q[:5], r"class probabilities of shape \(6, 3\).*got \(5, 3\)"),
        (lambda q: q.to("meta"), "`target` must be on the device of `logits`"),
    ],
)
def test_wrong_soft_targets_are_located(name, change, message):
    """Sums, values that are not finite, shapes and devices: the message names the row and what to do."""
    z, q, _ = example()
    with pytest.raises(InvalidInputError, match=message):
        (LINEAR | OTHERS)[name](z, change(q))


@pytest.mark.parametrize("name", [*LINEAR])
def test_a_mean_needs_a_positive_sum_of_weights(name):
    """Negative entries of heavy classes may make the divisor negative; sums and other reductions are fine."""
    z, _, _ = example(4)
    q = torch.tensor([[1.2, -0.1, -0.1]], dtype=torch.float64).expand(4, 3)
    loss, options = LINEAR[name], {"weight": torch.tensor([0.1, 5.0, 1.0], dtype=torch.float64)}
    with pytest.raises(InvalidInputError, match=r'`target` must have a positive sum.*Use reduction="sum"'):
        loss(z, q, **options)
    assert torch.isfinite(loss(z, q, reduction="sum", **options))
    assert torch.isfinite(loss(z, q, weight=torch.ones(3, dtype=torch.float64)))


def test_wrong_positions_are_located():
    """The message names the position, not the flattened row."""
    z = torch.zeros(2, 3, 4)
    q = torch.full((2, 3, 4), 1 / 3)
    q[1, :, 2] = 0.2
    with pytest.raises(InvalidInputError, match=r"position \(1, 2\) sums to 0\.6"):
        peer_loss(z, q)


def test_prior_of_binary_labels_does_not_fit_soft_targets():
    """A prior (L, 2) belongs to integer targets."""
    z, q, _ = example()
    with pytest.raises(InvalidInputError, match=r"`noisy_prior` must have shape \(3,\)"):
        peer_loss(z, q, noisy_prior=[[0.5, 0.5]] * 3)


def test_sampled_peers_need_two_rows_with_a_label():
    """As for class codes, rows of NaN do not count."""
    z, q, _ = example()
    q[1:] = torch.nan
    with pytest.raises(InvalidInputError, match="with 1 not ignored"):
        peer_loss(z, q, peers="sampled")

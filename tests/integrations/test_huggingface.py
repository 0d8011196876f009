"""The Hugging Face Trainer with our losses."""

import pytest
import torch
from torch import nn

from peerloss import AlphaSchedule, DMILoss, PeerLoss, PlainLoss
from peerloss.exceptions import InvalidInputError
from peerloss.functional import peer_loss

transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from peerloss.integrations.huggingface import AlphaCallback, ComputeLoss  # noqa: E402 (may be absent)

K, ROWS = 4, 24


class Net(nn.Module):
    """Logits of one token each, without dropout, in double precision."""

    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(
            torch.randn(7, K, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        )

    def forward(self, input_ids, labels=None):  # noqa: ARG002 (the Trainer drops what it does not see here)
        """Leave the labels to the Trainer."""
        return {"logits": self.table[input_ids]}


def token_rows(ragged=True):
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(7, (ROWS, 5), generator=generator)
    labels = torch.randint(K, (ROWS, 5), generator=generator)
    if ragged:  # micro-batches then hold different numbers of labels
        lengths = torch.randint(1, 6, (ROWS, 1), generator=generator)
        labels[torch.arange(5) >= lengths] = -100
    return [{"input_ids": t, "labels": y} for t, y in zip(tokens, labels, strict=True)]


def trainer(folder, loss, *, micro, accumulate, rows=None, callbacks=(), shift=False, **options):
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=accumulate,
        optim="sgd",
        learning_rate=0.5,
        lr_scheduler_type="constant",
        max_grad_norm=0.0,
        use_cpu=True,
        report_to="none",
        disable_tqdm=True,
        **({"save_strategy": "no"} | options),
    )
    return transformers.Trainer(
        Net(),
        arguments,
        train_dataset=token_rows() if rows is None else rows,
        compute_loss_func=ComputeLoss(loss, shift=shift),
        callbacks=list(callbacks),
    )


def weights_after(folder, loss, **options):
    made = trainer(folder, loss, max_steps=3, **options)
    made.train()
    return made.model.table.detach().clone()


PRIOR = [0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize("shift", [False, True])
@pytest.mark.parametrize(
    "loss", [PlainLoss, lambda: PeerLoss(alpha=0.8, noisy_prior=PRIOR)], ids=["plain", "given prior"]
)
def test_accumulated_micro_batches_step_like_the_joined_batch(loss, shift, tmp_path):
    """Eight rows at once, or four times two with different numbers of labels: the same weights."""
    at_once = weights_after(tmp_path, loss(), micro=8, accumulate=1, shift=shift)
    in_parts = weights_after(tmp_path, loss(), micro=2, accumulate=4, shift=shift)
    assert not torch.equal(at_once, Net().table)
    torch.testing.assert_close(in_parts, at_once, atol=1e-13, rtol=0)


def test_a_counted_prior_includes_the_labels_so_far():
    """Each micro-batch uses the counts up to it; the parts are weighted by the Trainer's number of labels."""
    generator = torch.Generator().manual_seed(2)
    sizes = [3, 9, 4]
    parts = [
        (
            torch.randn(n, K, generator=generator, dtype=torch.float64),
            torch.randint(K, (n,), generator=generator),
        )
        for n in sizes
    ]
    compute = ComputeLoss(PeerLoss(alpha=0.7))
    total = sum(compute({"logits": z}, y, torch.tensor(sum(sizes))) for z, y in parts)
    expected, counts = 0.0, torch.zeros(K)
    for z, y in parts:
        counts = counts + torch.bincount(y, minlength=K)
        expected += peer_loss(z, y, alpha=0.7, noisy_prior=counts / counts.sum(), reduction="sum")
    assert total.item() == pytest.approx(expected.item() / sum(sizes), abs=1e-7)
    logits, labels = (torch.cat(both) for both in zip(*parts, strict=True))
    assert compute.loss.label_counts.tolist() == torch.bincount(labels, minlength=K).tolist()
    # Once labels have been counted, the joined batch and its parts agree with each other and the given prior.
    share = compute.loss.current_prior().double()
    compute.loss.noisy_prior = share
    joined = compute({"logits": logits}, labels, len(labels))
    assert sum(compute({"logits": z}, y, len(labels)) for z, y in parts).item() == pytest.approx(
        joined.item()
    )


def test_without_a_count_the_loss_is_the_mean():
    """As older Trainers evaluate; tuples begin with the logits."""
    z, y = torch.randn(5, K), torch.arange(5) % K
    assert ComputeLoss(PlainLoss())((z,), y) == PlainLoss()(z, y)
    assert ComputeLoss(DMILoss())((z,), y, 10) == DMILoss()(z, y) / 2


def test_a_batch_without_labels_has_loss_zero():
    """A batch of padding has loss 0, not NaN."""
    z = torch.randn(2, 3, K, requires_grad=True)
    value = ComputeLoss(PeerLoss())({"logits": z}, torch.full((2, 3), -100), torch.tensor(0))
    value.backward()
    assert value == 0.0
    assert (z.grad == 0).all()


def test_evaluation_counts_no_labels(tmp_path):
    """The loss is not part of the model, but it follows the mode of the model."""
    loss = PeerLoss()
    made = trainer(tmp_path, loss, micro=8, accumulate=1, max_steps=3)
    made.train()
    seen = sum(int((row["labels"] != -100).sum()) for row in token_rows())
    assert int(loss.label_counts.sum()) == seen
    made.evaluate(token_rows(ragged=False))
    assert int(loss.label_counts.sum()) == seen
    assert not loss.training


@pytest.mark.parametrize(
    ("every", "expected"), [("step", [0.1, 0.2, 0.3, 0.4]), ("epoch", [0.0, 0.1, 0.1, 0.2])]
)
def test_alpha_follows_steps_or_epochs(every, expected, tmp_path):
    """Optimizer steps, not micro-batches; after each step the log holds α of the next."""
    loss = PeerLoss()
    callback = AlphaCallback(AlphaSchedule(loss, [(0, 0.0), (10, 1.0)]), every=every)
    made = trainer(tmp_path, loss, micro=6, accumulate=2, callbacks=[callback], max_steps=4, logging_steps=1)
    made.train()
    logged = [record["alpha"] for record in made.state.log_history if "loss" in record]
    assert logged == pytest.approx(expected)


def test_a_resumed_training_has_the_weights_the_alpha_and_the_prior_of_an_uninterrupted_one(tmp_path):
    """From a checkpoint in the middle, in a new Trainer with a new loss."""

    def make(folder, **options):
        loss = PeerLoss()
        callback = AlphaCallback(AlphaSchedule(loss, [(0, 0.0), (6, 1.0)]))
        made = trainer(
            folder,
            loss,
            micro=4,
            accumulate=1,
            callbacks=[callback],
            save_strategy="steps",
            save_steps=4,
            **options,
        )
        return made, loss

    uninterrupted, loss = make(tmp_path / "a", max_steps=8)
    uninterrupted.train()
    resumed, later = make(tmp_path / "b", max_steps=8)
    resumed.train(resume_from_checkpoint=str(tmp_path / "a" / "checkpoint-4"))
    assert resumed.state.global_step == 8
    assert torch.equal(resumed.model.table, uninterrupted.model.table)
    assert torch.equal(later.label_counts, loss.label_counts)
    assert later.alpha == loss.alpha


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (PlainLoss(reduction="sum"), "reduction='mean'; got 'sum'"),
        (PeerLoss(ignore_index=0), "ignore_index=-100; got 0"),
    ],
)
def test_losses_that_the_trainer_would_scale_wrongly_are_refused(loss, message):
    """Its number of labels sets the scale."""
    with pytest.raises(InvalidInputError, match=message):
        ComputeLoss(loss)


def test_missing_labels_raise():
    """The Trainer drops columns that the model does not take; the message shows how to keep them."""
    with pytest.raises(InvalidInputError, match=r"`labels` must be part.*remove_unused_columns"):
        ComputeLoss(PeerLoss())({"logits": torch.zeros(2, K)}, None)


def test_the_callback_names_wrong_arguments():
    """A loss instead of a schedule; an unknown unit."""
    with pytest.raises(InvalidInputError, match="`schedule` must be an AlphaSchedule; got PeerLoss"):
        AlphaCallback(PeerLoss())
    with pytest.raises(InvalidInputError, match="`every` must be"):
        AlphaCallback(AlphaSchedule(PeerLoss(), [(0, 1.0)]), every="batch")

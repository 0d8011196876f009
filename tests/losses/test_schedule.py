"""Schedules of α."""

import pytest

from peerloss import AlphaSchedule, PeerLoss, PlainLoss
from peerloss.exceptions import InvalidInputError

KNOTS = [(0, 0.0), (10, 0.0), (40, 2.0)]


def test_alpha_follows_the_knots():
    """Constant before and after, linear between; step 0 is set on construction."""
    loss = PeerLoss(alpha=9.0)
    schedule = AlphaSchedule(loss, KNOTS)
    seen = [loss.alpha]
    for _ in range(50):
        schedule.step()
        seen.append(loss.alpha)
    assert seen[:11] == [0.0] * 11
    assert seen[25] == 1.0
    assert seen[40:] == [2.0] * 11
    assert seen[11] == pytest.approx(2 / 30)


def test_a_schedule_resumes():
    """A checkpoint restores the step, the knots and α itself."""
    first = PeerLoss()
    schedule = AlphaSchedule(first, KNOTS)
    for _ in range(17):
        schedule.step()
    other = PeerLoss()
    resumed = AlphaSchedule(other, [(0, 5.0)])
    resumed.load_state_dict(schedule.state_dict())
    assert other.alpha == first.alpha
    schedule.step()
    resumed.step()
    assert other.alpha == first.alpha


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AlphaSchedule(PeerLoss(), []), "`knots` must be pairs"),
        (lambda: AlphaSchedule(PeerLoss(), [(0, 1.0, 2.0)]), "`knots` must be pairs"),
        (lambda: AlphaSchedule(PeerLoss(), [(0, 1.0), (0, 2.0)]), "`knots` must have increasing steps"),
        (lambda: AlphaSchedule(PeerLoss(), [(0, float("nan"))]), "`knots` must be a finite number"),
        (lambda: AlphaSchedule(PlainLoss(), KNOTS), "`loss` must have an attribute `alpha`; got PlainLoss"),
    ],
)
def test_bad_schedules_are_named(make, message):
    """The message shows what a schedule looks like."""
    with pytest.raises(InvalidInputError, match=message):
        make()


def test_a_class_instead_of_a_loss_is_refused():
    """Otherwise the schedule would overwrite the property of the class."""
    with pytest.raises(InvalidInputError, match=r"got the class PeerLoss\. Pass a loss"):
        AlphaSchedule(PeerLoss, [(0, 0.0), (10, 1.0)])
    assert PeerLoss(alpha=0.5).alpha == 0.5


@pytest.mark.parametrize("knots", [{0: 0.0}, 3, "ab", [0.0, 1.0], None])
def test_knots_must_be_pairs(knots):
    """Anything else is refused with an example."""
    with pytest.raises(InvalidInputError, match=r"`knots` must be pairs \(step, alpha\)"):
        AlphaSchedule(PeerLoss(), knots)

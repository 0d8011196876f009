"""Shared by the callbacks of all frameworks: α as a function of training progress."""

from __future__ import annotations

from peerloss._validation import check_choice
from peerloss.exceptions import InvalidInputError
from peerloss.losses import AlphaSchedule

EVERY = ("step", "epoch")


def check_every(every: str) -> str:
    """Return ``every`` if it is a unit in which a schedule can count."""
    return check_choice(every, "every", EVERY)


def check_schedule(schedule: AlphaSchedule) -> AlphaSchedule:
    """Return ``schedule`` if it is an AlphaSchedule."""
    if not isinstance(schedule, AlphaSchedule):
        raise InvalidInputError(
            f"`schedule` must be an AlphaSchedule; got {type(schedule).__name__}. "
            "Use AlphaSchedule(loss, [(0, 0.0), (100, 1.0)])."
        )
    return schedule


def go_to(schedule: AlphaSchedule, step: int) -> None:
    """Set α to its value at ``step``, so that resumed training needs no extra state."""
    schedule.load_state_dict({**schedule.state_dict(), "last_step": step})


def missing_extra(error: ImportError, extra: str) -> ImportError:
    """Return ``error`` with the command that installs what is missing."""
    return ImportError(f'{error}. Install what this module needs with: pip install "peerloss[{extra}]"')

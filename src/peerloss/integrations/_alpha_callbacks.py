"""What the callbacks of all frameworks share: α follows from how far training is."""

from __future__ import annotations

from peerloss._validation import check_choice
from peerloss.exceptions import InvalidInputError
from peerloss.losses import AlphaSchedule

EVERY = ("step", "epoch")


def check_every(every: str) -> str:
    """Return ``every`` if it is a unit in which α may move."""
    return check_choice(every, "every", EVERY)


def check_schedule(schedule: AlphaSchedule) -> AlphaSchedule:
    """Return ``schedule`` if it is one."""
    if not isinstance(schedule, AlphaSchedule):
        raise InvalidInputError(
            f"`schedule` must be an AlphaSchedule; got {type(schedule).__name__}. "
            "Use AlphaSchedule(loss, [(0, 0.0), (100, 1.0)])."
        )
    return schedule


def go_to(schedule: AlphaSchedule, step: int) -> None:
    """Set α to that of ``step``, wherever the schedule was: resumed trainings need no bookkeeping."""
    schedule.load_state_dict({**schedule.state_dict(), "last_step": step})


def missing_extra(error: ImportError, extra: str) -> ImportError:
    """Return ``error`` as one that says what to install."""
    return ImportError(f'{error}. Install what this module needs with: pip install "peerloss[{extra}]"')

"""The options --jobs and --seed, which several commands have, and options that need another one."""

from __future__ import annotations

from typing import Any

import typer

from peerloss.exceptions import InvalidInputError

#: Largest seed that NumPy and scikit-learn accept.
MAX_SEED = 2**32 - 1


def jobs_option(workers: str = "processes") -> Any:
    """Return the option --jobs; ``workers`` says what is counted."""
    return typer.Option(callback=_check_jobs, help=f"Number of {workers}; -1 uses all cores.")


def seed_option(text: str) -> Any:
    """Return the option --seed with its help text."""
    return typer.Option(callback=_check_seed, help=text)


def _check_jobs(jobs: int) -> int:
    if jobs == 0:
        raise typer.BadParameter(
            "the number of jobs must be an integer other than 0; got 0. Use 1 for one at a time, or -1 for "
            "all cores."
        )
    return jobs


def _check_seed(seed: int) -> int:
    if not 0 <= seed <= MAX_SEED:
        raise typer.BadParameter(f"the seed must be an integer from 0 to {MAX_SEED} (2**32 - 1); got {seed}.")
    return seed


def refuse_unused(option: str, *, needs: str) -> None:
    """Raise an error for an option that has no effect without another one."""
    raise InvalidInputError(f"`{option}` has no effect without {needs}. Add {needs}, or leave out {option}.")

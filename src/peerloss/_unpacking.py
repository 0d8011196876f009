"""Limit the memory that a small compressed file can claim."""

from __future__ import annotations

from peerloss.exceptions import InvalidInputError


def check_unpacked_size(
    unpacked: int, packed: int, name: str, *, free_bytes: int, max_ratio: int, advice: str
) -> None:
    """Raise an error if a file unpacks to more than ``free_bytes`` and than ``max_ratio`` times its size.

    ``unpacked`` and ``packed`` are its sizes in bytes, ``advice`` is the last sentence of the message.
    """
    allowed = max(free_bytes, max_ratio * packed)
    if unpacked > allowed:
        raise InvalidInputError(
            f"{name} unpacks to more than {allowed // 2**20} MiB, over {max_ratio} times its size. {advice}"
        )

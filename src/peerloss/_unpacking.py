"""Limit the memory that a small compressed file can claim."""

from __future__ import annotations

from peerloss.exceptions import InvalidInputError


def check_unpacked_size(
    unpacked: int, packed: int, name: str, *, free_bytes: int, max_ratio: int, advice: str
) -> None:
    """Raise an error if a file unpacks to far more than its own size explains.

    Parameters
    ----------
    unpacked, packed
        Sizes in bytes with and without compression.
    name
        Name of the file, for the message.
    free_bytes
        Size that every file may unpack to.
    max_ratio
        Ratio of the two sizes up to which a larger file is accepted.
    advice
        The last sentence of the message.
    """
    allowed = max(free_bytes, max_ratio * packed)
    if unpacked > allowed:
        raise InvalidInputError(
            f"{name} unpacks to more than {allowed // 2**20} MiB, over {max_ratio} times its size. {advice}"
        )

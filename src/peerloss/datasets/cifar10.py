"""CIFAR-10 and the human labels of CIFAR-10N, read from a local folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._validation import check_choice
from peerloss.datasets.cifar_files import CifarFiles

if TYPE_CHECKING:
    from pathlib import Path

    from peerloss.datasets.cifar_files import CifarImages

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
CIFAR10 = CifarFiles(
    name="CIFAR-10",
    classes=CIFAR10_CLASSES,
    folder="cifar-10-batches-py",
    training_files=tuple(f"data_batch_{i}" for i in range(1, 6)),
    test_file="test_batch",
    label_key="labels",
    human_labels={
        "aggregate": "aggre_label",
        "random1": "random_label1",
        "random2": "random_label2",
        "random3": "random_label3",
        "worst": "worse_label",
    },
)


def load_cifar10(data_dir: str | Path | None = None) -> CifarImages:
    """Read CIFAR-10 from its standard folder ``cifar-10-batches-py``.

    Parameters
    ----------
    data_dir
        That folder or one that contains it; ``None`` uses the environment variable ``PEERLOSS_DATA``.
    """
    return CIFAR10.load(data_dir)


def load_cifar10n(kind: str = "worst", data_dir: str | Path | None = None) -> CifarImages:
    """Read CIFAR-10 with human labels (CIFAR-10N): training labels are noisy, test labels clean.

    Parameters
    ----------
    kind
        ``"worst"`` (a wrong label, if one of the three is wrong), ``"aggregate"`` (the majority of three),
        ``"random1"``, ``"random2"`` or ``"random3"`` (one label per image).
    data_dir
        As in :func:`load_cifar10`; it also contains ``CIFAR-10_human.pt`` or ``cifar10n_labels.npz``.

    References
    ----------
    Wei, Zhu, Cheng, Liu, Niu and Liu, *Learning with Noisy Labels Revisited*, ICLR 2022.
    """
    check_choice(kind, "kind", tuple(CIFAR10.human_labels))
    return CIFAR10.load(data_dir, kind)

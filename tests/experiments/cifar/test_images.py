"""CIFAR-10 in its parts."""

import numpy as np
import pytest

from peerloss.datasets._cifar import load_cifar10, load_cifar10n
from peerloss.exceptions import InvalidInputError
from peerloss.experiments.cifar._images import read_human_labels, read_test, read_training
from tests.experiments.cifar.made_up import write_cifar


def test_the_parts_are_those_of_the_whole(tmp_path):
    """The same images, labels and human labels as the public readers give."""
    write_cifar(tmp_path)
    whole = load_cifar10n("worst", tmp_path)
    images, clean = read_training(tmp_path)
    np.testing.assert_array_equal(images, whole.train_images)
    np.testing.assert_array_equal(clean, load_cifar10(tmp_path).train_labels)
    np.testing.assert_array_equal(read_human_labels("worst", clean, tmp_path), whole.train_labels)
    for own, usual in zip(read_test(tmp_path), (whole.test_images, whole.test_labels), strict=True):
        np.testing.assert_array_equal(own, usual)


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ({"clean_label": [0, 1]}, "must hold 'worse_label'.*found \\['clean_label'\\]"),
        ({"worse_label": [1, 1]}, "must hold 'worse_label' and a 'clean_label'"),
        ({"clean_label": [1, 0], "worse_label": [1, 1]}, "data_batch_5 in their original order"),
        ({"clean_label": [0, 1], "worse_label": [1, 1, 1]}, "other labels or lengths"),
        ({"clean_label": [0, 1], "worse_label": [1, 10]}, "'worse_label' must hold labels in 0..9"),
    ],
)
def test_labels_that_do_not_go_with_the_images_are_refused(tables, told, tmp_path):
    """Missing, for other images, too many, of no class."""
    np.savez(tmp_path / "cifar10n_labels.npz", **tables)
    with pytest.raises(InvalidInputError, match=told):
        read_human_labels("worst", np.array([0, 1]), tmp_path)

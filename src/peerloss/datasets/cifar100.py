"""CIFAR-100 and the human labels of CIFAR-100N, read from a local folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss.datasets.cifar_files import CifarFiles

if TYPE_CHECKING:
    from pathlib import Path

    from peerloss.datasets.cifar_files import CifarImages

#: Superclass (the coarse label) → its five classes.
CIFAR100_SUPERCLASSES = {
    "aquatic_mammals": ("beaver", "dolphin", "otter", "seal", "whale"),
    "fish": ("aquarium_fish", "flatfish", "ray", "shark", "trout"),
    "flowers": ("orchid", "poppy", "rose", "sunflower", "tulip"),
    "food_containers": ("bottle", "bowl", "can", "cup", "plate"),
    "fruit_and_vegetables": ("apple", "mushroom", "orange", "pear", "sweet_pepper"),
    "household_electrical_devices": ("clock", "keyboard", "lamp", "telephone", "television"),
    "household_furniture": ("bed", "chair", "couch", "table", "wardrobe"),
    "insects": ("bee", "beetle", "butterfly", "caterpillar", "cockroach"),
    "large_carnivores": ("bear", "leopard", "lion", "tiger", "wolf"),
    "large_man-made_outdoor_things": ("bridge", "castle", "house", "road", "skyscraper"),
    "large_natural_outdoor_scenes": ("cloud", "forest", "mountain", "plain", "sea"),
    "large_omnivores_and_herbivores": ("camel", "cattle", "chimpanzee", "elephant", "kangaroo"),
    "medium_mammals": ("fox", "porcupine", "possum", "raccoon", "skunk"),
    "non-insect_invertebrates": ("crab", "lobster", "snail", "spider", "worm"),
    "people": ("baby", "boy", "girl", "man", "woman"),
    "reptiles": ("crocodile", "dinosaur", "lizard", "snake", "turtle"),
    "small_mammals": ("hamster", "mouse", "rabbit", "shrew", "squirrel"),
    "trees": ("maple_tree", "oak_tree", "palm_tree", "pine_tree", "willow_tree"),
    "vehicles_1": ("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
    "vehicles_2": ("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
}
#: The fine labels are numbered in alphabetical order.
CIFAR100_CLASSES = tuple(sorted(name for names in CIFAR100_SUPERCLASSES.values() for name in names))
CIFAR100 = CifarFiles(
    name="CIFAR-100",
    classes=CIFAR100_CLASSES,
    folder="cifar-100-python",
    training_files=("train",),
    test_file="test",
    label_key="fine_labels",
    human_labels={"human": "noisy_label"},
)


def load_cifar100(data_dir: str | Path | None = None) -> CifarImages:
    """Read CIFAR-100 with its 100 fine labels from its standard folder ``cifar-100-python``.

    Parameters
    ----------
    data_dir
        That folder or one that contains it; ``None`` uses the environment variable ``PEERLOSS_DATA``.
    """
    return CIFAR100.load(data_dir)


def load_cifar100n(data_dir: str | Path | None = None) -> CifarImages:
    """Read CIFAR-100 with human labels (CIFAR-100N): training labels are noisy, test labels clean.

    Parameters
    ----------
    data_dir
        As in :func:`load_cifar100`; it also contains ``CIFAR-100_human.pt`` or ``cifar100n_labels.npz``.

    References
    ----------
    Wei, Zhu, Cheng, Liu, Niu and Liu, *Learning with Noisy Labels Revisited*, ICLR 2022.
    """
    return CIFAR100.load(data_dir, "human")

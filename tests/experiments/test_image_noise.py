"""The names of the noise in experiments on images."""

import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.experiments._image_noise import SYNTHETIC, NoiseName, parse_noise


def test_names_have_a_kind_and_numbers():
    """The rate is the last number; the name of human labels is their kind."""
    assert parse_noise("uniform:0.4") == NoiseName("uniform", rate=0.4)
    assert parse_noise("asymmetric:.3") == NoiseName("asymmetric", rate=0.3)
    assert parse_noise("instance:0") == NoiseName("instance", rate=0.0)
    assert parse_noise("long_tail:10:0.2") == NoiseName("long_tail", rate=0.2, imbalance=10.0)
    assert parse_noise("worst") == parse_noise("worst", "cifar10") == NoiseName("worst")
    assert parse_noise("human") == parse_noise("human", "cifar100") == NoiseName("human")


def test_the_examples_are_valid():
    """Messages and help show them."""
    assert [parse_noise(name).kind for name in SYNTHETIC.values()] == list(SYNTHETIC)


@pytest.mark.parametrize(
    "name",
    [
        *("uniform", "uniform:", "uniform:1.0", "uniform:1.5", "uniform:-0.1", "uniform:nan", "uniform:a"),
        *("uniform:10:0.2", "long_tail:0.2", "long_tail:10", "long_tail:0.5:0.2", "long_tail:inf:0.2"),
        *("long_tail:nan:0.2", "long_tail:10:0.2:1", "pair:0.2", "worst:0.2", "sometimes", "", ":", ":0.4"),
    ],
)
def test_an_unknown_noise_is_refused_with_the_known_ones(name):
    """The message has every kind with an example, the sets of human labels, and what was received."""
    with pytest.raises(InvalidInputError) as caught:
        parse_noise(name)
    message = str(caught.value)
    assert message.startswith("`noise` must be uniform:RATE, asymmetric:RATE, instance:RATE or long_tail:")
    assert all(example in message for example in (*SYNTHETIC.values(), "worst"))
    assert f"got {name!r}" in message

"""Skip tests whose data are not in the package."""

import os

import pytest

from peerloss.datasets.real_noise import find_real_noise
from peerloss.exceptions import InvalidInputError


def need(name):
    """Skip the test, with the reason, if the data set is missing."""
    try:
        find_real_noise(name, os.environ.get("PEERLOSS_DATA"))
    except InvalidInputError as error:
        pytest.skip(str(error))

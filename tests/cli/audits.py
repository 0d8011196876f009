"""Small audits for the tests of ``peerloss audit``, ``review`` and ``apply``."""

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from peerloss.cli import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def made_up(folder, n=60):
    """Write a table in which every tenth label is wrong, and probabilities of its labels.

    The rows with a wrong label are neither the surest nor the least sure ones of their class.
    """
    clean = np.arange(n) % 2
    given = np.where(np.arange(n) % 10 == 0, 1 - clean, clean)
    p = np.where(clean == 1, 0.9, 0.1) + np.linspace(-0.05, 0.05, n) * np.where(given == clean, 1.0, 0.6)
    data = pd.DataFrame({"id": [f"r{i}" for i in range(n)], "x": clean + np.linspace(0, 0.3, n).round(3)})
    data["label"] = np.where(given == 1, "yes", "no")
    data.to_csv(folder / "data.csv", index=False)
    probabilities = pd.DataFrame({"probability_yes": p, "probability_no": 1 - p})
    probabilities.to_csv(folder / "proba.csv", index=False)
    return data, np.where(clean == 1, "yes", "no")

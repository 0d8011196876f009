"""A table with wrong and misspelt labels, and the commands that read it."""

import json

import numpy as np
import pandas as pd

from tests.cli.audits import run

ROWS = 200


def make_table(n=ROWS):
    """Return a table in which every tenth label is wrong."""
    rng = np.random.default_rng(0)
    clean = np.arange(n) % 2
    table = pd.DataFrame(
        {"x": (2.0 * clean - 1 + rng.normal(size=n)).round(4), "z": rng.normal(size=n).round(4)}
    )
    return table.assign(label=np.where(np.isin(np.arange(n) % 20, [0, 5]) ^ (clean == 1), "Yes", "No"))


def audit(folder, *options, name="data.csv"):
    return run("audit", folder / name, "--target", "label", "-o", folder / "out", *options)


def fit(folder, *options, name="data.csv"):
    return run("fit", folder / name, "--target", "label", "-o", folder / "model", *options)


def described(folder, *options, name="data.csv"):
    done = run("datasets", folder / name, "--target", "label", "--json", *options)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["table"]


def misspell(table):
    """Write some labels in capitals, and more with a space behind them."""
    label, style = table["label"], table.index // 2 % 6
    return table.assign(
        label=label.mask(style == 0, label.str.upper()).mask(style > 3, label.str.lower() + " ")
    )

"""Audits of small tables, without training."""

import numpy as np
import pandas as pd

from peerloss.audit import find_label_issues
from peerloss.audit.folder import write_folder

HOSTILE = "<script>document.title='taken over'</script>"


def table(n=60):
    """Return a table in which every tenth label is wrong, with markup in labels and features."""
    rng = np.random.default_rng(0)
    clean = np.arange(n) % 3
    names = np.array(["cat", HOSTILE, "bird & co"])
    given = np.where(np.arange(n) % 10 == 0, (clean + 1) % 3, clean)
    proba = np.full((n, 3), 0.02)
    proba[np.arange(n), clean] = 0.96 - 0.2 * rng.random(n)
    proba /= proba.sum(axis=1, keepdims=True)
    data = pd.DataFrame({"size": rng.normal(size=n).round(3), "note": [f"{HOSTILE} {i}" for i in range(n)]})
    data["label"] = names[given]
    return data, proba, names[clean]


def made_audit(n=60):
    data, proba, clean = table(n)
    y = pd.Series(pd.Categorical(data["label"], categories=["cat", HOSTILE, "bird & co"]), name="label")
    return find_label_issues(data.drop(columns="label"), y, pred_proba=proba), data, clean


def write_audit(folder, n=60):
    """Write a CSV and an audit of it; return the clean labels."""
    audit, data, clean = made_audit(n)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "animals.csv"
    data.to_csv(path, index=False)
    write_folder(folder / "audit", audit, path, rows=np.arange(n), labels=["label"], title="Animals")
    return clean

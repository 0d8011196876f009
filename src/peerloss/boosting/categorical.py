"""Replace categorical columns by codes, with the same codes in training and prediction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class CategoricalColumns:
    """The categorical columns and their categories."""

    categories: dict[int, pd.Index]
    """Column position → its categories, in the order of their codes."""

    @classmethod
    def learn(cls, X: Any, categorical_features: Sequence[int | str] | None) -> CategoricalColumns:
        """Find the categorical columns: the given ones, and those of a DataFrame with dtype ``category``."""
        positions = {} if categorical_features is None else _positions(X, categorical_features)
        if isinstance(X, pd.DataFrame):
            found = [i for i, dtype in enumerate(X.dtypes) if isinstance(dtype, pd.CategoricalDtype)]
            positions.update(dict.fromkeys(found))
        if not positions:
            return cls({})
        frame = _as_frame(X)
        return cls({i: pd.Categorical(frame.iloc[:, i]).categories for i in sorted(positions)})

    @property
    def positions(self) -> list[int]:
        """Positions of the categorical columns, ascending."""
        return list(self.categories)

    def encode(self, X: Any) -> Any:
        """Replace each categorical column by its codes; missing values and unseen categories become NaN."""
        if not self.categories:
            return X
        frame = _as_frame(X)
        columns = [frame.iloc[:, i] for i in range(frame.shape[1])]
        for i, categories in self.categories.items():
            codes = categories.get_indexer(pd.Index(columns[i])).astype(np.float64)
            columns[i] = pd.Series(
                np.where(codes < 0, np.nan, codes), index=frame.index, name=columns[i].name
            )
        return pd.concat(columns, axis=1)


def _as_frame(X: Any) -> pd.DataFrame:
    return X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))


def _positions(X: Any, wanted: Sequence[int | str]) -> dict[int, None]:
    names = list(X.columns) if isinstance(X, pd.DataFrame) else []
    width = np.shape(X)[1] if np.ndim(X) == 2 else 0
    if isinstance(wanted, str):
        raise InvalidInputError(
            f"`categorical_features` must be a list of column names or positions; got {wanted!r}. "
            f"Pass [{wanted!r}]."
        )
    found: dict[int, None] = {}
    for column in wanted:
        if isinstance(column, str) and column in names:
            found[names.index(column)] = None
        elif isinstance(column, int | np.integer) and 0 <= column < width:
            found[int(column)] = None
        else:
            raise InvalidInputError(
                f"`categorical_features` must contain names of columns of `X` or positions below {width}; "
                f"got {column!r}." + (f" The columns are {names}." if names else " Pass positions.")
            )
    return found

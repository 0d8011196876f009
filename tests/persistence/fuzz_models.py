"""A small fitted model of every kind that can be saved, for ``fuzz_folders``."""

import lightgbm  # noqa: F401 - imported once, before the fork
import numpy as np
import pandas as pd
import xgboost  # noqa: F401 - as above
from scipy.sparse import random_array
from sklearn.datasets import make_classification
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC, NuSVC
from sklearn.tree import DecisionTreeClassifier

from peerloss import (
    CostSensitiveSVC,
    MarginPerceptron,
    PeerBoostingClassifier,
    PeerClassifier,
    PeerPlugInClassifier,
    RobustMLPClassifier,
    save_model,
)
from peerloss.estimators import TableEncoder

X, CODES = make_classification(60, 5, n_informative=3, random_state=0)
THREE = CODES + (X[:, 0] > 1)
TEXT = np.array(
    [f"{'good' if code else 'bad'} word{i % 7} and more" for i, code in enumerate(CODES)], dtype=object
)
TABLE = pd.DataFrame(X[:, :3], columns=["a", "b", "c"]).assign(
    kind=np.where(X[:, 3] > 0, "up", "down"), size=np.round(X[:, 4])
)
SENTENCES = TABLE.assign(text=[f"{text} in row {i}" for i, text in enumerate(TEXT)])
SPARSE = random_array((60, 300), density=0.1, rng=0, format="csr")
#: Enough rows for LightGBM to split by category.
CATEGORIES = pd.concat([TABLE] * 15, ignore_index=True).assign(kind=pd.Categorical(np.arange(900) % 9))
PARITY = (np.tile(CODES, 15) + np.arange(900) % 9) % 2


def plug_in(estimator, features=X, labels=CODES):
    """Return a fitted plug-in."""
    return PeerPlugInClassifier(estimator, cv=2).fit(features, labels)


#: Kind of model → function that returns a fitted model and features to predict.
KINDS = {
    "forest": lambda: (plug_in(RandomForestClassifier(3, random_state=0)), X),
    "extra trees": lambda: (plug_in(ExtraTreesClassifier(3, random_state=0), labels=THREE), X),
    "boosting": lambda: (plug_in(GradientBoostingClassifier(n_estimators=3)), X),
    "boosting, three classes": lambda: (plug_in(GradientBoostingClassifier(n_estimators=2), labels=THREE), X),
    "histograms": lambda: (plug_in(HistGradientBoostingClassifier(max_iter=3)), X),
    "histograms, three classes": lambda: (
        plug_in(HistGradientBoostingClassifier(max_iter=2), labels=THREE),
        X,
    ),
    "svc": lambda: (plug_in(SVC()), X),
    "svc, three classes": lambda: (plug_in(SVC(kernel="poly"), labels=THREE), X),
    "nu-svc": lambda: (plug_in(NuSVC(nu=0.3)), X),
    "linear svc": lambda: (plug_in(LinearSVC()), X),
    "ridge": lambda: (plug_in(RidgeClassifier()), X),
    "sgd": lambda: (plug_in(SGDClassifier(loss="log_loss", random_state=0)), X),
    "bagging": lambda: (
        plug_in(BaggingClassifier(DecisionTreeClassifier(max_depth=3), 3, random_state=0)),
        X,
    ),
    "ada boost": lambda: (plug_in(AdaBoostClassifier(n_estimators=3, random_state=0)), X),
    "voting": lambda: (
        plug_in(
            VotingClassifier(
                [
                    ("bayes", GaussianNB()),
                    ("lda", LinearDiscriminantAnalysis()),
                    ("tree", DecisionTreeClassifier()),
                ],
                voting="soft",
            )
        ),
        X,
    ),
    "pipeline": lambda: (
        plug_in(
            make_pipeline(StandardScaler(), Nystroem(n_components=9, random_state=0), LogisticRegression())
        ),
        X,
    ),
    "quantiles": lambda: (
        plug_in(make_pipeline(QuantileTransformer(n_quantiles=9), QuadraticDiscriminantAnalysis())),
        X,
    ),
    "one hot": lambda: (
        plug_in(make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()), np.round(X)),
        np.round(X),
    ),
    "one hot, grouped": lambda: (
        plug_in(
            make_pipeline(
                OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=5, drop="first"),
                LogisticRegression(),
            ),
            np.round(X),
        ),
        np.round(X),
    ),
    "words": lambda: (plug_in(make_pipeline(TfidfVectorizer(), LogisticRegression()), TEXT), TEXT),
    "table": lambda: (
        make_pipeline(TableEncoder(), MarginPerceptron(margin_grid=[0.0, 1.0])).fit(TABLE, CODES),
        TABLE,
    ),
    "sentences": lambda: (MarginPerceptron(margin_grid=[1.0]).fit(SENTENCES, CODES), SENTENCES),
    "sparse": lambda: (MarginPerceptron(margin_grid=[1.0]).fit(SPARSE, CODES), SPARSE),
    "lightgbm, sentences": lambda: (
        PeerBoostingClassifier(n_estimators=2, min_child_samples=5).fit(SENTENCES, CODES),
        SENTENCES,
    ),
    "network": lambda: (
        RobustMLPClassifier(max_steps=5, random_state=np.random.default_rng(0)).fit(X, CODES),
        X,
    ),
    "c-svm": lambda: (CostSensitiveSVC(cv=2, class_weight_grid=(1.0,)).fit(X, CODES), X),
    "perceptron": lambda: (MarginPerceptron(margin_grid=[1.0]).fit(X, THREE), X),
    "lightgbm": lambda: (
        PeerBoostingClassifier(n_estimators=4, min_child_samples=2).fit(CATEGORIES, PARITY),
        CATEGORIES,
    ),
    "lightgbm, three classes": lambda: (
        PeerBoostingClassifier(n_estimators=2, min_child_samples=5).fit(X, THREE),
        X,
    ),
    "xgboost": lambda: (
        PeerBoostingClassifier(backend="xgboost", n_estimators=4, min_child_samples=2).fit(
            CATEGORIES, PARITY
        ),
        CATEGORIES,
    ),
    "xgboost, three classes": lambda: (
        PeerBoostingClassifier(backend="xgboost", n_estimators=2, min_child_samples=5).fit(X, THREE),
        X,
    ),
}
#: They take seconds to fit, so they are in the slow test only.
LONG_KINDS = {
    "portfolio": lambda: (PeerClassifier(cv=2, random_state=0).fit(X, CODES), X),
    "portfolio, sentences": lambda: (PeerClassifier(cv=2, random_state=0).fit(SENTENCES, CODES), SENTENCES),
}


def save_models(home, kinds=KINDS):
    """Save a fitted model of each kind, and features to predict."""
    for number, make in enumerate(kinds.values()):
        model, features = make()
        save_model(model, home / str(number))
        pd.to_pickle(features, home / f"{number}.features")  # read by this test only

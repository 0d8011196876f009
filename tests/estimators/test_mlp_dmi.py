"""DMI with many classes."""

from sklearn.datasets import load_digits

from peerloss import NoiseModel, RobustMLPClassifier, flip_labels


def test_dmi_learns_ten_classes():
    """On digits with 30 % wrong labels it goes on learning where its warm start ends."""
    X, clean = load_digits(return_X_y=True)
    noisy = flip_labels(clean, NoiseModel.uniform(10, 0.3), random_state=1)
    train, test = slice(0, 1300), slice(1300, None)
    options = {"hidden_layer_sizes": (32,), "learning_rate": 0.003, "n_members": 2, "random_state": 0}
    warm = RobustMLPClassifier("plain", max_steps=15, **options).fit(X[train], noisy[train])
    dmi = RobustMLPClassifier("dmi", max_steps=400, warm_start_fraction=15 / 400, **options)
    dmi.fit(X[train], noisy[train])
    assert dmi.score(X[test], clean[test]) > max(0.75, 0.04 + warm.score(X[test], clean[test]))

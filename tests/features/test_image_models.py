"""Features of images from pretrained models: folders, names, and what is refused."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from peerloss.datasets import read_image
from peerloss.exceptions import InvalidInputError
from peerloss.features import image_features
from peerloss.features._image_models import ImageModel, load_image_model
from tests.datasets.made_images import write_images
from tests.features.models import no_network, save_bert, save_clip, save_resnet, save_vit, transformers  # noqa: F401

CPU = torch.device("cpu")


@pytest.fixture
def images(tmp_path):
    return sorted(write_images(tmp_path / "images", 3).rglob("*.png"))


@pytest.mark.usefixtures("no_network")
def test_a_vision_transformer_is_averaged_over_its_tokens(tmp_path, images):
    """The features are those of transformers on the same pixels; nothing connects to the network."""
    save_vit(tmp_path / "vit")
    found = image_features(images, model=tmp_path / "vit", n_components=None, batch_size=4)
    loaded = transformers.ViTModel.from_pretrained(tmp_path / "vit").eval()
    model = load_image_model(tmp_path / "vit", CPU)
    with torch.inference_mode():
        batch = torch.stack([model.prepare(read_image(path)) for path in images])
        expected = loaded(pixel_values=batch).last_hidden_state.mean(dim=1).numpy()
    assert found.shape == (6, 16)
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.usefixtures("no_network")
def test_a_residual_network_is_averaged_over_its_grid(tmp_path, images):
    """A name given as text is a folder if there is one."""
    found = image_features(images, model=str(save_resnet(tmp_path / "resnet")), n_components=None)
    assert found.shape == (6, 16)
    assert np.ptp(found, axis=0).max() > 0


def test_a_model_of_images_and_texts_is_used_for_images(tmp_path, images):
    """Its projected features are used."""
    found = image_features(images, model=save_clip(tmp_path / "clip"), n_components=None)
    assert found.shape == (6, 8)
    assert np.ptp(found, axis=0).max() > 0


def test_the_head_of_a_classifier_is_ignored(tmp_path, images):
    """A classifier has no pooler, whose weights would be random; they are not used."""
    model = save_vit(tmp_path / "vit", "ViTForImageClassification", num_labels=3)
    one, other = (image_features(images, model=model, n_components=None) for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_wide_features_are_reduced(tmp_path, images):
    """By default to 64 components, here to 3."""
    model = save_vit(tmp_path / "vit")
    assert image_features(images, model=model, n_components=3).shape == (6, 3)


@pytest.mark.parametrize(
    ("settings", "size", "short_side"),
    [
        ({}, (32, 32), None),
        ({"size": {"height": 16, "width": 24}}, (16, 24), None),
        ({"size": 20}, (20, 20), None),
        ({"size": {"shortest_edge": 40}, "crop_size": {"height": 32, "width": 32}}, (32, 32), 40),
        ({"size": {"shortest_edge": 28}, "crop_pct": 0.875}, (28, 28), 32),
        ({"size": 36, "crop_size": 32, "do_center_crop": True}, (32, 32), 36),
    ],
)
def test_images_are_prepared_as_the_model_expects(tmp_path, settings, size, short_side):
    """Size, crop, mean and deviation come from the settings next to the weights."""
    folder = save_vit(tmp_path / "vit")
    settings |= {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.25, 0.5], "resample": 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    model = load_image_model(folder, CPU)
    assert (model.size, model.short_side, model.resample) == (size, short_side, 3)
    white = model.prepare(np.full((50, 70, 3), 255, dtype=np.uint8))
    assert white.shape == (3, *size)
    np.testing.assert_allclose(white[:, 0, 0], [1, 2, 1])


def test_the_centre_of_a_long_image_is_cut_out():
    """Proportions are kept; an image of one row is not scaled to gigabytes first."""
    pixels = np.zeros((1, 100_001, 3), dtype=np.uint8)
    pixels[:, 50_000] = 255
    model = ImageModel(torch.nn.Identity(), (8, 8), 8, (0, 0, 0), (1, 1, 1), 0)
    assert model.prepare(pixels).min() == 1


@pytest.mark.parametrize(
    "settings",
    [
        {"size": 100_000},
        {"size": {"height": "9", "width": 9}},
        {"image_mean": [0.5]},
        {"image_std": [0.5, 0, 0.5]},
    ],
)
def test_impossible_settings_are_refused(tmp_path, settings):
    """A file of settings cannot ask for gigabytes or divide by zero."""
    folder = save_vit(tmp_path / "vit")
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    with pytest.raises(InvalidInputError, match=r"its settings must give a side from 1 to 2048 pixels"):
        load_image_model(folder, CPU)


def test_a_size_that_is_not_a_number_is_refused(tmp_path):
    """The file of settings is named."""
    folder = save_vit(tmp_path / "vit")
    (folder / "preprocessor_config.json").write_text('{"size": {"shortest_edge": "x"}}')
    with pytest.raises(InvalidInputError, match=r"preprocessor_config\.json does not say the size"):
        load_image_model(folder, CPU)


def pickled(folder):
    torch.save({}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def no_weights(folder):
    (folder / "model.safetensors").unlink()


def damaged(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def incomplete(folder):
    save_file({"embeddings.cls_token": torch.zeros(1, 1, 16)}, folder / "model.safetensors", {"format": "pt"})


def no_settings(folder):
    (folder / "config.json").unlink()


def list_of_settings(folder):
    (folder / "config.json").write_text("[]")


def unknown(folder):
    (folder / "config.json").write_text('{"model_type": "no-such-model"}')


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (pickled, "it has pytorch_model.bin, which may contain code"),
        (no_weights, "it has none"),
        (damaged, "could not be loaded"),
        (incomplete, "of its weights, such as"),
        (no_settings, "is not a readable JSON file"),
        (list_of_settings, "must contain a JSON object; got list"),
        (unknown, "could not be loaded"),
    ],
)
@pytest.mark.usefixtures("no_network")
def test_folders_that_cannot_be_trusted_are_refused(tmp_path, images, spoil, message):
    """Pickles are never loaded, and no weight is left random."""
    folder = save_vit(tmp_path / "vit")
    spoil(folder)
    with pytest.raises(InvalidInputError, match=message):
        image_features(images, model=folder)


def test_a_model_of_texts_is_refused_for_images(tmp_path, images):
    """The message says what the model was applied to."""
    with pytest.raises(InvalidInputError, match=r"cannot be applied to images of shape \(3, 224, 224\)"):
        image_features(images, model=save_bert(tmp_path / "bert"))


def test_features_that_are_not_finite_are_refused(tmp_path, images):
    """Weights may be damaged without being incomplete."""
    folder = save_vit(tmp_path / "vit")
    model = transformers.ViTModel.from_pretrained(folder)
    torch.nn.init.constant_(model.layernorm.weight, float("nan"))
    model.save_pretrained(folder)
    with pytest.raises(InvalidInputError, match="must return finite features, one row per image"):
        image_features(images, model=folder)


@pytest.mark.parametrize("name", ["no such/model/here", "./vit", "/vit", "a/b/c"])
@pytest.mark.usefixtures("no_network")
def test_paths_are_never_downloaded(name, images):
    """What cannot be a name is a folder that does not exist."""
    with pytest.raises(InvalidInputError, match="it does not exist"):
        image_features(images, model=name)


def test_a_file_is_not_a_folder(tmp_path, images):
    """Weights are given by their folder, which has the settings too."""
    save_vit(tmp_path / "vit")
    with pytest.raises(InvalidInputError, match="it is a file"):
        image_features(images, model=tmp_path / "vit" / "model.safetensors")


def test_a_name_is_downloaded_without_pickles(tmp_path, images, monkeypatch):
    """Only safetensors, settings and vocabularies are requested."""
    folder, asked = save_vit(tmp_path / "vit"), {}

    def download(name, allow_patterns):
        asked.update(name=name, patterns=allow_patterns)
        return str(folder)

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=download))
    assert image_features(images, model="someone/vit", n_components=2).shape == (6, 2)
    assert asked["name"] == "someone/vit"
    assert not {"*", "*.bin", "*.pt", "*.py"} & set(asked["patterns"])


def test_a_failed_download_is_explained(images, monkeypatch):
    """The first line of the error, and what to do without a network."""

    def download(name, **_options):
        raise OSError(f"{name} is unreachable\nlong story")

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(snapshot_download=download))
    with pytest.raises(InvalidInputError, match=r"Hugging Face: vit is unreachable\. Check the name, or"):
        image_features(images, model="vit")


def test_a_missing_package_is_named(images, monkeypatch):
    """With the command that installs it."""
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(InvalidInputError, match=r"`model` needs timm, .* pip install timm"):
        image_features(images, model="timm:resnet18")


class Small(torch.nn.Module):
    """A network with two linear layers, of which the last one is the head."""

    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(3, 5)
        self.head = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(5, 10))

    def forward(self, x):
        """Return logits of mean colours."""
        return self.head(self.body(x.mean(dim=(2, 3))))


def fake_torchvision(state):
    """Return the part of torchvision that is used, with one model of weights ``state``."""
    transforms = SimpleNamespace(
        crop_size=[8],
        resize_size=[10],
        mean=[0.5] * 3,
        std=[0.5] * 3,
        interpolation=SimpleNamespace(value="bicubic"),
    )

    def get_state_dict(*, progress, check_hash, weights_only):
        assert (progress, check_hash, weights_only) == (False, True, True)
        return state

    weights = SimpleNamespace(get_state_dict=get_state_dict, transforms=lambda: transforms)

    def get_model_weights(name):
        if name != "small":
            raise ValueError(f"Unknown model {name}")
        return SimpleNamespace(DEFAULT=weights)

    def get_model(name, weights):
        assert (name, weights) == ("small", None)
        return Small()

    return SimpleNamespace(get_model_weights=get_model_weights, get_model=get_model)


def test_torchvision_models_lose_their_last_linear_layer(images, monkeypatch):
    """Downloads are checked and read as tensors only; the preparation is that of the weights."""
    state = Small().state_dict()
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torchvision.models", fake_torchvision(state))
    assert image_features(images, model="torchvision:small", n_components=None).shape == (6, 5)
    model = load_image_model("torchvision:small", CPU)
    assert (model.size, model.short_side, model.resample) == ((8, 8), 10, 3)
    with pytest.raises(InvalidInputError, match="torchvision cannot load 'large': Unknown model large"):
        image_features(images, model="torchvision:large")


def test_a_torchvision_model_without_a_linear_layer_is_refused(images, monkeypatch):
    """Its head cannot be found."""
    module = torch.nn.Sequential(torch.nn.Flatten())
    fake = fake_torchvision({})
    fake.get_model = lambda _name, weights: module if weights is None else None
    monkeypatch.setitem(sys.modules, "torchvision", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torchvision.models", fake)
    with pytest.raises(InvalidInputError, match="'small' has no linear layer at its end"):
        image_features(images, model="torchvision:small")


class Pooled(Small):
    """The same network without a head."""

    def __init__(self):
        super().__init__()
        self.head = torch.nn.Identity()


def fake_timm():
    """Return the part of timm that is used."""

    def create_model(name, *, pretrained, num_classes):
        if name != "small":
            raise RuntimeError(f"Unknown model ({name})")
        assert num_classes == 0
        model = Pooled()
        model.pretrained = pretrained
        return model

    def resolve_data_config(settings, *, model):
        assert isinstance(model, Pooled)
        usual = {"input_size": (3, 8, 8), "mean": (0.5,) * 3, "std": (0.5,) * 3, "interpolation": "bilinear"}
        return usual | {"crop_pct": 0.8} | settings

    return SimpleNamespace(
        create_model=create_model, data=SimpleNamespace(resolve_data_config=resolve_data_config)
    )


def test_timm_models_by_name_and_by_folder(tmp_path, images, monkeypatch):
    """A folder in timm's format is loaded from safetensors; the head in the file is not needed."""
    monkeypatch.setitem(sys.modules, "timm", fake_timm())
    assert image_features(images, model="timm:small", n_components=None).shape == (6, 5)
    state = Small().state_dict()
    save_file(state, tmp_path / "model.safetensors")
    settings = {"architecture": "small", "pretrained_cfg": {"input_size": [3, 6, 6]}}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    model = load_image_model(tmp_path, CPU)
    assert (model.size, model.short_side, model.resample) == ((6, 6), 7, 2)
    torch.testing.assert_close(model.forward.body.weight.detach(), state["body.weight"])


def test_timm_folders_must_be_complete(tmp_path, images, monkeypatch):
    """Weights that are not in the file would be random; unknown architectures are named."""
    monkeypatch.setitem(sys.modules, "timm", fake_timm())
    (tmp_path / "config.json").write_text('{"architecture": "small"}')
    save_file({"body.weight": torch.zeros(5, 3)}, tmp_path / "model.safetensors")
    with pytest.raises(InvalidInputError, match=r"lacks 1 of its weights, such as body\.bias"):
        image_features(images, model=tmp_path)
    with pytest.raises(InvalidInputError, match=r"timm cannot load 'large': Unknown model \(large\)"):
        image_features(images, model="timm:large")

"""Features of texts from pretrained models."""

import json

import numpy as np
import pytest
import torch

from peerloss.exceptions import InvalidInputError
from peerloss.features import text_features
from tests.features.models import no_network, save_bert, save_clip, save_t5, save_vit, transformers  # noqa: F401

TEXTS = ["good film", "the film was very good", "bad", "", "bad film was bad film"]


@pytest.fixture
def bert(tmp_path):
    return save_bert(tmp_path / "bert")


@pytest.mark.usefixtures("no_network")
def test_tokens_are_averaged_without_padding(bert):
    """The features of a text do not depend on the other texts of its batch; nothing uses the network."""
    found = text_features(TEXTS, model=bert, n_components=None)
    alone = [text_features([text, "good"], model=bert, n_components=None, batch_size=1)[0] for text in TEXTS]
    assert found.shape == (5, 16)
    np.testing.assert_allclose(found, alone, atol=1e-5)


def test_the_mean_is_that_of_transformers(bert):
    """[CLS] good film [SEP], averaged over all four tokens."""
    model = transformers.BertModel.from_pretrained(bert).eval()
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([[2, 4, 6, 3]])).last_hidden_state.mean(dim=1)
    found = text_features(["good film"], model=str(bert), n_components=None)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


def test_long_texts_are_truncated(bert):
    """The model has 16 positions; more words than that do not fail."""
    assert text_features(["good film " * 500], model=bert).shape == (1, 16)


def test_missing_texts_count_as_empty(bert):
    """NaN and None are what an empty field of a table becomes."""
    done = []
    found = text_features(
        [None, float("nan"), "", "good"], model=bert, n_components=None, progress=lambda *at: done.append(at)
    )
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    np.testing.assert_allclose(found[0], found[2], atol=1e-6)
    assert done == [(4, 4)]


@pytest.mark.parametrize("nested", [False, True])
def test_sentence_transformers_may_use_the_first_token(tmp_path, nested):
    """The folder's own settings decide; the model may lie in a sub-folder."""
    folder = tmp_path / "sentences"
    save_bert(folder / "0_Transformer" if nested else folder)
    (folder / "modules.json").write_text("[]")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    place = folder / "0_Transformer" if nested else folder
    model = transformers.BertModel.from_pretrained(place).eval()
    with torch.inference_mode():
        expected = model(input_ids=torch.tensor([[2, 4, 3]])).last_hidden_state[:, 0]
    found = text_features(["good"], model=folder, n_components=None)
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)


@pytest.mark.parametrize(("save", "width"), [(save_clip, 8), (save_t5, 16)])
def test_models_with_other_parts_are_used_for_texts(tmp_path, save, width):
    """Of a model of images and texts, and of an encoder and decoder, the part for reading texts is used."""
    found = text_features(["good film", "bad film"], model=save(tmp_path / "model"), n_components=None)
    assert found.shape == (2, width)
    assert not np.allclose(found[0], found[1])


def no_tokenizer(folder):
    for path in folder.glob("tokenizer*"):
        path.unlink()


def not_finite(folder):
    model = transformers.BertModel.from_pretrained(folder)
    torch.nn.init.constant_(model.embeddings.word_embeddings.weight, float("nan"))
    model.save_pretrained(folder)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [(no_tokenizer, "has no tokenizer that can be loaded"), (not_finite, "must return finite features")],
)
def test_folders_that_cannot_be_used_are_refused(bert, spoil, message):
    """A missing tokenizer and broken weights are named."""
    spoil(bert)
    with pytest.raises(InvalidInputError, match=message):
        text_features(TEXTS, model=bert)


def test_a_model_of_images_is_refused_for_texts(tmp_path, bert):
    """It cannot be applied to tokens."""
    folder = save_vit(tmp_path / "vit")
    for path in bert.glob("tokenizer*"):
        path.rename(folder / path.name)
    with pytest.raises(InvalidInputError, match="cannot be applied to texts"):
        text_features(TEXTS, model=folder)


def test_nothing_but_empty_texts_is_refused(bert):
    """There is nothing to learn from."""
    with pytest.raises(InvalidInputError, match="at least one text that is not empty"):
        text_features(["", " ", None], model=bert)

"""Tiny models with random weights, saved as Hugging Face saves them."""

import json
import socket

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="needs transformers")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "film", "very", "the", "was"]


def save_vit(folder, kind="ViTModel", **settings):
    """Save a vision transformer with images of 32 × 32 pixels."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.ViTConfig(image_size=32, patch_size=8, **sizes, **settings)
    getattr(transformers, kind)(config).save_pretrained(folder)
    return folder


def save_resnet(folder):
    """Save a residual network, whose output is a grid."""
    torch.manual_seed(0)
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    transformers.ResNetModel(config).save_pretrained(folder)
    return folder


def save_bert(folder, **settings):
    """Save a text model of ten words with its tokenizer."""
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=16, **sizes, **settings)
    transformers.BertModel(config).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_tokenizer(folder):
    """Write the files of a tokenizer by hand."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs tokenizers")
    model = tokenizers.models.WordLevel(
        {word: i for i, word in enumerate(WORDS)},
        unk_token="[UNK]",  # noqa: S106 - a token, not a password
    )
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "[PAD]", "unk_token": "[UNK]"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


@pytest.fixture
def no_network(monkeypatch):
    """Fail if anything connects to the network."""

    def refuse(*_arguments, **_options):
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def save_clip(folder):
    """Save a model of images and texts, with its tokenizer."""
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}
    config = transformers.CLIPConfig(
        text_config={"vocab_size": len(WORDS), "max_position_embeddings": 16, **special, **sizes},
        vision_config={"image_size": 32, "patch_size": 8, **sizes},
        projection_dim=8,
    )
    transformers.CLIPModel(config).save_pretrained(folder)
    save_tokenizer(folder)
    return folder


def save_t5(folder):
    """Save an encoder and decoder of texts, with its tokenizer."""
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2}
    transformers.T5Model(transformers.T5Config(vocab_size=len(WORDS), **sizes)).save_pretrained(folder)
    save_tokenizer(folder)
    return folder

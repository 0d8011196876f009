"""The losses in the training loops of other frameworks.

There is one module per framework, each with its own extra: ``peerloss.integrations.huggingface``
(``peerloss[hf]``), ``peerloss.integrations.lightning`` (``peerloss[lightning]``),
``peerloss.integrations.skorch`` (``peerloss[skorch]``) and ``peerloss.integrations.opacus``
(``peerloss[privacy]``). They are not imported with this package. In your own loop the losses replace
``nn.CrossEntropyLoss``; :func:`flatten_tokens` prepares sequences of tokens.
"""

from peerloss.integrations._training_loops import flatten_tokens

__all__ = ["flatten_tokens"]

"""The losses inside other people's training loops.

One module a framework, each with its extra: ``peerloss.integrations.huggingface`` (``peerloss[hf]``),
``peerloss.integrations.lightning`` (``peerloss[lightning]``), ``peerloss.integrations.skorch``
(``peerloss[skorch]``). Nothing of them is imported before it is asked for. In a loop of one's own the losses
stand where ``nn.CrossEntropyLoss`` stood; :func:`flatten_tokens` brings tokens into their form.
"""

from peerloss.integrations._tokens import flatten_tokens

__all__ = ["flatten_tokens"]

"""Linear layers with frozen quantized weights, as modules of torch.

``planq.torch.nn`` is imported on request::

    import planq.torch.nn

    print(planq.torch.nn.quantize_layers(model, "nf4"))  # of a floating model
    print(planq.torch.nn.load_layers(model, "model-gptq"))  # of a checkpoint, by name

Modules:
    :class:`Linear4bit`, :class:`Linear8bit` and :class:`LinearFp8` differ by the type of their
    codes. They take the place of ``torch.nn.Linear``: ``y = x W^T + b``. W is what
    :meth:`~Linear4bit.dequantize` returns.

Bits:
    A forward pass is one call of ``torch.ops.planq``, or two, so its bits are those of the plans.
    They are the same on the host and on every GPU where these promise ``BIT_EXACT``. It computes in
    the dtype of the input, or in that of autocast, if autocast is on.

Gradients:
    Weights are frozen. The gradient of the input is ``dx = dy W``, with W dequantized to the dtype
    of ``dy``: for float16 and bfloat16 by ``torch.ops.planq.matmul``, with its promise; for
    float32, of which planq has no such product, by ``torch.matmul``. Codes, scales and biases have
    none. So adapters beside a layer train, and those before it: QLoRA.

State dicts:
    A state dict has the tensors of the format that the layer came in, under the names that
    transformers and vLLM have for them:

    ====================  ==========================================================================
    GPTQ, AWQ             ``qweight``, ``qzeros``, ``scales``, ``g_idx``
    compressed-tensors    ``weight_packed``, ``weight_scale``, ``weight_zero_point``,
                          ``weight_shape``, ``weight_global_scale``, ``weight``
    bitsandbytes          ``weight``, ``weight.absmax``, ``weight.quant_map``,
                          ``weight.quant_state.*``; ``SCB``
    ====================  ==========================================================================

    In memory there are only planq's operands. They are decoded where a state dict is loaded, and
    encoded where one is made; both is exact.
"""

from planq.torch.nn._modules import Linear4bit, Linear8bit, LinearFp8, QuantizedLinear
from planq.torch.nn._replacing import (
    LayerReport,
    ModelReport,
    load_layers,
    quantize_layers,
)

__all__ = [
    "LayerReport",
    "Linear4bit",
    "Linear8bit",
    "LinearFp8",
    "ModelReport",
    "QuantizedLinear",
    "load_layers",
    "quantize_layers",
]

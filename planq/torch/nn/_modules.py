"""Modules that take the place of ``torch.nn.Linear``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Self

import torch

from planq._nearest import did_you_mean
from planq.checkpoint.failure import TensorError
from planq.checkpoint.layers import GROUP, find_layers
from planq.checkpoint.peers.config import PeerConfig
from planq.checkpoint.peers.layer import Layer, StoredAs
from planq.dtypes import DType
from planq.errors import ArgumentError, shown
from planq.scope import Scope
from planq.torch._words import word
from planq.torch.nn._products import Product, dequantized, multiply
from planq.torch.nn._quantizing import quantized_layer
from planq.torch.nn._states import (
    TensorDict,
    as_numpy,
    dtype_of,
    kept_of,
    operands_of,
    part_tensor,
)

# Fields that follow from an operand's own dtype, or are no argument of torch's operator.
_TOLD: Final = ("scale_dtype", "zero_point_dtype")
# Where torch has another name for an operand, since a field has the same one.
_RENAMED: Final = {"codebook": "codebook_tensor"}
# What the buffers of parts begin with that no operand tells.
_KEPT: Final = "kept_"
_GROUPS: Final = f"group({GROUP})"


@dataclass(frozen=True, slots=True)
class _Part:
    """A tensor of a state dict.

    Attributes:
        suffix: Its name behind that of the module.
        dtype: Its type, by the name that files have for it.
        shape: Its extents.
    """

    suffix: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Stored:
    """How a layer is stored.

    Attributes:
        form: The format.
        parts: Its tensors, by part.
        encode: Makes those parts that follow from operands.
    """

    form: StoredAs
    parts: dict[str, _Part]
    encode: Callable[[Mapping[str, Any]], dict[str, Any]]


class QuantizedLinear(torch.nn.Module):
    """What :class:`Linear4bit`, :class:`Linear8bit` and :class:`LinearFp8` have in common.

    A module is empty until :meth:`load_state_dict` fills it; :meth:`from_linear` makes one that
    is full.

    Formula:
        ``y[..., n] = sum over k of x[..., k] * W[n, k] + bias[n]``, with W as :meth:`dequantize`
        returns it, in the arithmetic of :class:`planq.Linear4BitDescriptor` or
        :class:`planq.LinearMixedDescriptor`. Backward: ``dx[..., k] = sum over n of dy[..., n] *
        W[n, k]``, by :class:`planq.MatmulDescriptor`; of float32 by ``torch.matmul``.

    Shapes:
        Input ``(..., in_features)``, output ``(..., out_features)``.

    Dtypes:
        Input float16, bfloat16 or float32; the output has the same. Operands keep their types:
        ``half()`` and ``to(dtype)`` move a module, and convert none of its numbers.

    Args:
        in_features: Columns of the weight.
        out_features: Rows of the weight.
        quantization_config: The entry of this name in a checkpoint's ``config.json``. GPTQ needs
            it, since it alone tells the versions of that format apart.
        activations: ``"none"``: they stay floating. ``"token"``: each token is quantized by its
            own range as it comes, to int8 beside int8 weights, and to float8_e4m3fn beside floats
            of 8 bits; beside blocks of 128 x 128 in groups of 128. Then the product is that of
            :class:`planq.LinearW8A8DynamicDescriptor` or :class:`planq.LinearFp8Descriptor`, and
            the gradient passes the quantization unchanged.

    Attributes:
        in_features: Columns of the weight.
        out_features: Rows of the weight.
        activations: Whether activations are quantized.
        code_dtypes: The types of codes that the class has.
        schemes: The schemes of ``planq quantize`` that make such codes.

    Raises:
        ArgumentError: A call of an empty module.
    """

    code_dtypes: ClassVar[tuple[DType, ...]]
    schemes: ClassVar[tuple[str, ...]]
    in_features: int
    out_features: int

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        quantization_config: Mapping[str, Any] | None = None,
        activations: str = "none",
    ) -> None:
        super().__init__()
        if activations not in ("none", "token"):
            raise ArgumentError("activations", "none or token", repr(activations))
        self.activations = activations
        self.in_features, self.out_features = in_features, out_features
        self.quantization_config = None if quantization_config is None else {**quantization_config}
        self._product: Product | None = None
        self._operands: tuple[str, ...] = ()
        self._stored: _Stored | None = None

    @classmethod
    def from_linear(
        cls,
        linear: torch.nn.Linear,
        scheme: str | None = None,
        *,
        block_size: int | None = None,
        nested: bool = False,
        group_size: int | None = None,
        search: str = "none",
        activations: str = "none",
    ) -> Self:
        """Quantizes a floating layer, with the bits that ``planq quantize`` makes of its weight.

        Args:
            linear: The layer; it stays as it is.
            scheme: A scheme of ``planq quantize``, with codes of this class; None: the first of
                :attr:`schemes`.
            block_size: Elements of a block of nf4 and fp4; None for 64.
            nested: Whether the absmax of these blocks are quantized, too.
            group_size: Elements of a group of int4 and uint4; None for 128.
            search: ``"mse"`` searches for the range of each group.
            activations: As for the class.

        Raises:
            ArgumentError: The scheme makes other codes.
            CheckpointError: An option does not go with the scheme, or a shape with its groups.
        """
        name = cls.schemes[0] if scheme is None else scheme
        if name not in cls.schemes:
            raise _no_scheme(scheme, cls.schemes)
        options: Any = {"block_size": block_size, "nested": nested, "group_size": group_size}
        layer = quantized_layer(linear, name, search=search, activations=activations, **options)
        return cls.from_layer(layer, device=linear.weight.device, activations=activations)

    @classmethod
    def from_layer(
        cls,
        layer: Layer,
        *,
        device: torch.device | str | None = None,
        activations: str = "none",
    ) -> Self:
        """Makes the module of a layer that :func:`planq.checkpoint.read_layers` found.

        Args:
            layer: The layer. Its files have to be open.
            device: Where its operands go; None for the host.
            activations: As for the class.

        Raises:
            ArgumentError: Its codes are those of another class, or have no product with codes.
            CheckpointError: Its values mean nothing in the format, or the files changed.
        """
        n, k = layer.shape
        made = cls(k, n, activations=activations)
        made._take(layer, layer.name, torch.device("cpu" if device is None else device))
        return made

    @property
    def stored_as(self) -> StoredAs | None:
        """The format of the state dict; None while it is empty."""
        return None if self._stored is None else self._stored.form

    @property
    def device(self) -> torch.device | None:
        """Where the operands are; None while it is empty."""
        return next(iter(self._given())).device if self._operands else None

    @property
    def nbytes(self) -> int:
        """The bytes of its operands."""
        return sum(tensor.nbytes for tensor in self._given())

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # noqa: A002  (torch's name)
        """Multiplies; see the class."""
        return multiply(_cast(input), self._filled(), *self._given())

    def dequantize(self, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """Returns the weight ``(out_features, in_features)``, each number rounded once to a dtype.

        Raises:
            ArgumentError: The module is empty.
        """
        product = self._filled()
        return dequantized(dtype, product, *self._given())

    def extra_repr(self) -> str:
        """The sizes, the codes, what shares a scale, and the format."""
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        if self._product is None or self._stored is None:
            return f"{sizes}, empty"
        fields = dict(self._product.fields)
        if "block_size" in fields:
            nested = ", nested" if "nested_block_size" in fields else ""
            codes = f"{fields['codebook']} in blocks of {fields['block_size']}{nested}"
        else:
            zeros = ", zero points" if fields.get("weight_mode") == "asymmetric" else ""
            codes = f"{fields['code_dtype']} by {fields['weight_scope']}{zeros}"
        bias = "bias" in self._product.names
        if self._product.activations is not None:
            codes += f", activations by {self._product.activations}"
        return f"{sizes}, bias={bias}, {codes}, stored as {self._stored.form.value}"

    def _filled(self) -> Product:
        if self._product is None:
            raise ArgumentError("weight", "a layer", "none", "load a state dict first")
        return self._product

    # --- Operands

    def _given(self) -> list[torch.Tensor]:
        """The operands, in the order of the product's names."""
        return [getattr(self, _attribute(name)) for name in self._operands]

    def _take(self, layer: Layer, where: str, device: torch.device | None) -> None:
        """Takes the operands of a layer in place of those that are there."""
        code = layer.fields["code_dtype"]
        if code not in self.code_dtypes:
            other = class_of(layer).__name__
            known = " or ".join(self.code_dtypes)
            raise ArgumentError(where, f"codes of {known}", str(code), f"{other} takes them")
        wanted = (self.out_features, self.in_features)
        if layer.shape != wanted:
            part = layer.parts["weight"]
            raise part.refused(f"codes of a weight {list(wanted)}", f"of {list(layer.shape)}")
        operands, product = operands_of(layer), _product_of(layer)
        if self.activations != "none":
            operands, product = _with_activations(layer, operands, product)
        kept = {name: kept_of(layer.parts[name]) for name in layer.kept}
        buffers = {_attribute(name): tensor for name, tensor in operands.items()}
        buffers |= {_KEPT + name: tensor for name, tensor in kept.items()}
        buffers = {name: tensor.to(device) for name, tensor in buffers.items()}
        for name in [*map(_attribute, self._operands), *(_KEPT + name for name in self._kept())]:
            delattr(self, name)
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor, persistent=False)
        self._operands = tuple(operands)
        names = tuple(_RENAMED.get(name, name) for name in operands)
        self._product = replace(product, names=names)
        self._stored = _Stored(layer.stored_as, _parts(layer), layer.encode)
        if layer.stored_as in (StoredAs.GPTQ, StoredAs.GPTQ_V2):
            self.quantization_config = self.quantization_config or _gptq_config(layer)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> Self:
        """Moves operands without converting them: their types are part of the format."""
        own = {id(buffer) for buffer in self._buffers.values()}

        def move(tensor: torch.Tensor) -> torch.Tensor:
            moved = fn(tensor)
            converted = id(tensor) in own and moved.dtype != tensor.dtype
            return tensor.to(moved.device) if converted else moved

        apply: Any = super()._apply  # it has no type annotations
        made: Self = apply(move, recurse)
        return made

    # --- State dicts

    def _save_to_state_dict(
        self, destination: dict[str, Any], prefix: str, keep_vars: bool
    ) -> None:
        """Adds the tensors of the format, on the device of the operands."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._stored is not None:
            made = self._encoded(self._stored)
            for name, part in self._stored.parts.items():
                destination[prefix + part.suffix] = made[name]

    def _encoded(self, stored: _Stored) -> dict[str, torch.Tensor]:
        """The tensors of the format, by part."""
        device, made = self.device, self._kept()
        if device is not None and device.type == "meta":
            return {
                name: torch.empty(part.shape, dtype=dtype_of(part.dtype), device=device)
                for name, part in stored.parts.items()
            }
        pairs = zip(self._operands, self._given(), strict=True)
        operands = {name: as_numpy(tensor) for name, tensor in pairs}
        if self._product is not None and self._product.activations == _GROUPS:
            each = operands["weight_scale"].repeat(GROUP, axis=0)  # as the reader has blocks
            operands["weight_scale"] = each[: self.out_features]
        found = stored.encode(operands)
        if "bias" in operands:
            found["bias"] = operands["bias"]
        for name, values in found.items():
            part = stored.parts[name]
            made[name] = part_tensor(values, part.dtype, part.shape).to(device)
        return made

    def _kept(self) -> dict[str, torch.Tensor]:
        """The parts that no operand tells."""
        return {
            name.removeprefix(_KEPT): buffer
            for name, buffer in self._buffers.items()
            if name.startswith(_KEPT) and buffer is not None
        }

    def _found(self, tensors: Mapping[str, Any], prefix: str) -> Layer:
        """The layer that tensors of a state dict are. One without a prefix gets the class's name.

        Raises:
            CheckpointError: They are no layer in any format.
        """
        config = None
        if self.quantization_config is not None:
            config = PeerConfig("quantization_config", self.quantization_config)
        name = prefix.removesuffix(".") or type(self).__name__
        named = {f"{name}.{key[len(prefix) :]}": value for key, value in tensors.items()}
        source = TensorDict(named)
        for layer in find_layers(source, config, weights_only=True):
            if layer.name == name:
                return layer
        codes = self._stored.parts["weight"].suffix if self._stored else "weight"
        there = ", ".join(named)
        raise TensorError(source.path, f"{name}.{codes}", "codes of a quantized layer", there)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Decodes the tensors of any format that planq reads; torch loads what else is here.

        Raises:
            TensorError: One of them is missing, or is not what the format has there; or the module
                has a bias, and the state dict none.
            CheckpointError: The config does not tell the format, or tells another one.
            ArgumentError: The codes are those of another class.
        """
        others: list[str] = []  # also the layer's own tensors, which torch does not know
        told = (local_metadata, strict, missing_keys, others, error_msgs)
        super()._load_from_state_dict(state_dict, prefix, *told)
        lasting = self._buffers.keys() - self._non_persistent_buffers_set
        theirs = {*self._modules, *self._parameters, *lasting, "_extra_state"}
        own = {
            name: value
            for name, value in state_dict.items()
            if name.startswith(prefix) and name[len(prefix) :].partition(".")[0] not in theirs
        }
        if not own:
            parts = self._stored.parts.values() if self._stored else ()
            missing_keys.extend(prefix + part.suffix for part in parts)
            missing_keys.extend([] if parts else [f"{prefix}weight"])
            unexpected_keys.extend(others)
            return
        layer = self._found(own, prefix)
        taken = {prefix + part.suffix for part in _parts(layer).values()}
        if self._stored is not None and "bias" in self._stored.parts.keys() - layer.parts.keys():
            expected = f"{self.out_features} numbers, since the layer has a bias"
            raise TensorError(TensorDict.path, f"{layer.name}.bias", expected, None)
        unexpected_keys.extend(name for name in others if name not in taken)
        device = self.device
        if device is None or device.type == "meta":
            device = next(iter(own.values())).device
        self._take(layer, layer.parts["weight"].entry.name, device)


# Devices of layers that compute. torch is not asked whether others have autocast: torch.compile of
# torch 2.11 breaks off at that question.
_COMPUTING: Final = ("cpu", "cuda")


def _cast(x: torch.Tensor) -> torch.Tensor:
    """The input as autocast has it, which leaves float64 and integers to be refused."""
    kind = x.device.type
    floating = x.is_floating_point() and x.dtype != torch.float64
    if floating and kind in _COMPUTING and torch.is_autocast_enabled(kind):
        return x.to(torch.get_autocast_dtype(kind))
    return x


def _attribute(operand: str) -> str:
    """The name of an operand's buffer.

    Models that look at a layer's ``weight`` expect floating numbers: some cast activations to its
    type. So codes have another name, and such a model fails instead of computing nonsense.
    """
    return "codes" if operand == "weight" else operand


def _with_activations(
    layer: Layer, operands: dict[str, torch.Tensor], product: Product
) -> tuple[dict[str, torch.Tensor], Product]:
    """The operands and the product of a layer whose activations are quantized.

    Raises:
        ArgumentError: There is no product of such codes.
    """
    fields = dict(product.fields)
    code, scope = layer.fields["code_dtype"], layer.fields.get("weight_scope")
    floats = code in (DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2)
    blocks = floats and scope == Scope.group(GROUP)
    if not (scope == Scope.channel(0) and (floats or code is DType.INT8)) and not blocks:
        expected = "int8 codes by rows, or floats of 8 bits, beside activations of 8 bits"
        found = f"{code} in blocks" if scope is None else f"{code} by {scope}"
        raise ArgumentError("activations", expected, found)
    scales = operands["weight_scale"].float()
    if blocks:
        fields["weight_scope"] = f"block({GROUP}, {GROUP})"
        scales = scales[::GROUP].contiguous()
    operator = "linear_fp8" if floats else "linear_w8a8_dynamic"
    made = Product(operator, (), tuple(fields.items()), _GROUPS if blocks else "token()")
    return {**operands, "weight_scale": scales}, made


def _product_of(layer: Layer) -> Product:
    """The product of floating activations; the names of its tensors come later."""
    fields = {
        name: value if isinstance(value, int) else word(value)
        for name, value in layer.fields.items()
        if name not in _TOLD and value is not None
    }
    arguments = (("weight_shape", list(layer.shape)), *fields.items())
    return Product(layer.kind.operator, (), arguments)


def _parts(layer: Layer) -> dict[str, _Part]:
    start = len(layer.name) + 1
    return {
        name: _Part(part.entry.name[start:], part.entry.dtype, part.entry.shape)
        for name, part in layer.parts.items()
    }


def _gptq_config(layer: Layer) -> dict[str, Any]:
    """What a config says of a layer of GPTQ, whose tensors do not tell the format's version."""
    return {
        "quant_method": "gptq",
        "checkpoint_format": layer.stored_as.value,
        "bits": 4 if layer.fields["code_dtype"] is DType.UINT4 else 8,
        "group_size": layer.fields["weight_scope"].size,
    }


class Linear4bit(QuantizedLinear):
    """A linear layer with weights of 4 bits: NF4, FP4, integers in groups, MXFP4, NVFP4.

    Formats: GPTQ, AWQ, compressed-tensors' ``pack-quantized``, ``mxfp4-pack-quantized`` and
    ``nvfp4-pack-quantized``, bitsandbytes in 4 bits. See :class:`QuantizedLinear`.
    """

    code_dtypes = (DType.UINT4, DType.INT4, DType.FLOAT4_E2M1FN)
    schemes = ("nf4", "fp4", "int4-group", "uint4-group", "int4-group128")


class Linear8bit(QuantizedLinear):
    """A linear layer with weights of 8-bit integers, per row or in groups.

    Formats: GPTQ of 8 bits, compressed-tensors' ``pack-quantized`` and ``int-quantized``,
    bitsandbytes' int8 rows. See :class:`QuantizedLinear`.
    """

    code_dtypes = (DType.INT8, DType.UINT8)
    schemes = ("int8-channel", "int8-tensor")


class LinearFp8(QuantizedLinear):
    """A linear layer with weights of 8-bit floats, per row, per tensor or in blocks of 128 x 128.

    Formats: compressed-tensors' ``float-quantized`` and ``naive-quantized``, DeepSeek's blocks
    (``weight_scale_inv``). See :class:`QuantizedLinear`.
    """

    code_dtypes = (DType.FLOAT8_E4M3FN, DType.FLOAT8_E5M2)
    schemes = ("fp8-channel", "fp8-tensor", "fp8-block128")


CLASSES: Final[tuple[type[QuantizedLinear], ...]] = (Linear4bit, Linear8bit, LinearFp8)


def class_of(layer: Layer) -> type[QuantizedLinear]:
    """The class whose codes a layer has."""
    code = layer.fields["code_dtype"]
    return next(known for known in CLASSES if code in known.code_dtypes)


def class_of_scheme(scheme: str) -> type[QuantizedLinear]:
    """The class whose codes a scheme makes.

    Raises:
        ArgumentError: No class has such codes.
    """
    for known in CLASSES:
        if scheme in known.schemes:
            return known
    raise _no_scheme(scheme, [name for known in CLASSES for name in known.schemes])


def _no_scheme(scheme: object, known: Sequence[str]) -> ArgumentError:
    hint = did_you_mean(scheme, known).removeprefix("; ")
    return ArgumentError("scheme", " or ".join(known), shown(scheme), hint)

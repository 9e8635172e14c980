"""Which module of a model each of its weights belongs to, as transformers describes it.

A file has only names and shapes, and these do not tell an embedding from a linear layer. If
transformers is installed, the class that ``config.json`` names is built on the meta device, without
memory for its weights, and its modules are inspected. Nothing is downloaded. Code that comes with a
model is never run: only classes of transformers itself are used.
"""

from __future__ import annotations

import importlib
import logging
import warnings
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from planq.checkpoint.formats import Format, reaching

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

LINEAR = "Linear"
OUTPUT = "output layer"
KEPT = "kept in float32 when it is loaded"
MERGED = "merged with others when it is loaded"

# Last parts of the names of tensors beside a weight: scales of compressed-tensors, of bitsandbytes.
_BESIDE = ("weight_scale", "SCB")
# A damaged config may ask for any number of layers. A model has about as many modules as tensors.
_MODULES_PER_TENSOR = 16
_MODULES_BESIDE = 4096


class UnknownArchitectureError(Exception):
    """The modules of a model cannot be determined; the message says why."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """The modules of a model, by the names that its class gives them.

    Attributes:
        name: The class, and the version of transformers that has it.
        kinds: The kind of each weight, by its name in the file: `LINEAR`, `OUTPUT` (a linear layer
            that makes logits), `MERGED` (transformers stacks several weights into one tensor, as
            those of experts), or why no reader takes codes for it.
        modules: The modules that the reader replaces by quantized layers unless told otherwise,
            each with its weight's name in the file, or None where the file has no weight for it.
        base: The prefix that names have in a model with a head, and lack without; may be empty.
        loads_packed: Whether transformers can load the model if the weights of these modules are
            stored under another name than ``weight``.
    """

    name: str
    kinds: Mapping[str, str]
    modules: Mapping[str, str | None]
    base: str
    loads_packed: Callable[[Collection[str]], bool]


def read_architecture(
    config: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...]],
    reader: Format,
    *,
    packed: bool,
) -> Architecture:
    """Asks transformers for the modules of a model.

    Args:
        config: What ``config.json`` holds.
        shapes: The shapes of all weights of two axes, by their names in the file.
        reader: Whose rules say which modules become quantized layers.
        packed: Whether codes are packed, and so have another name than ``weight``.

    Raises:
        UnknownArchitectureError: transformers is not there, or cannot tell.
    """
    try:
        with quietly():
            transformers, torch = _packages()
            with _offline(), _counted(torch, _most_modules(len(shapes))):
                model = _built(transformers, torch, config)
            found = _Modules(transformers, torch, model, reader, packed=packed)
            kinds = {name: found.kind(name, shape) for name, shape in shapes.items()}
    except UnknownArchitectureError:
        raise
    except Exception as error:  # a config may hold anything, and transformers may raise anything
        reason = (str(error).strip().splitlines() or [""])[0]
        raise UnknownArchitectureError(
            f"transformers cannot tell: {type(error).__name__}: {reason}"
        ) from error
    if not found.weights:
        raise UnknownArchitectureError(f"no weight of the file is one of {type(model).__name__}")
    return Architecture(
        name=f"{type(model).__name__}, transformers {transformers.__version__}",
        kinds=kinds,
        modules={name: found.weights.get(name) for name in found.converted},
        base=getattr(model, "base_model_prefix", "") if found.has_base else "",
        loads_packed=found.loads_packed,
    )


def _packages() -> tuple[Any, Any]:
    try:
        return importlib.import_module("transformers"), importlib.import_module("torch")
    except ImportError as error:
        raise UnknownArchitectureError("transformers and torch are not installed") from error


@contextmanager
def quietly() -> Iterator[None]:
    """Silences log messages and warnings of transformers and of the packages that it uses."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextmanager
def _offline() -> Iterator[None]:
    """Keeps transformers from asking the Hugging Face hub for anything that a config names."""
    constants = importlib.import_module("huggingface_hub.constants")
    before = constants.HF_HUB_OFFLINE
    vars(constants)["HF_HUB_OFFLINE"] = True
    try:
        yield
    finally:
        vars(constants)["HF_HUB_OFFLINE"] = before


def _most_modules(tensors: int) -> int:
    return tensors * _MODULES_PER_TENSOR + _MODULES_BESIDE


def _built(transformers: Any, torch: Any, config: Mapping[str, Any]) -> Any:
    """Builds the model that a config names, from transformers' own classes, on the meta device."""
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in transformers.CONFIG_MAPPING:
        raise UnknownArchitectureError(f"transformers knows no model type {kind!r}")
    facts = {
        key: value
        for key, value in config.items()
        if key not in ("quantization_config", "auto_map", "attn_implementation")
    }
    settings = transformers.CONFIG_MAPPING[kind].from_dict(facts)
    settings._attn_implementation = "eager"  # others may have to be downloaded
    made = _class_of(transformers, config, settings)
    with torch.device("meta"):
        return made(settings)


def _class_of(transformers: Any, config: Mapping[str, Any], settings: Any) -> Any:
    """The class that a config names, or the one without a head."""
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else None
    found: Any = getattr(transformers, name, None) if isinstance(name, str) else None
    is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    if is_model and isinstance(settings, found.config_class or ()):
        return found
    if name is not None:
        raise UnknownArchitectureError(f"transformers knows no architecture {name!r}")
    try:
        return transformers.AutoModel._model_mapping[type(settings)]
    except KeyError:
        raise UnknownArchitectureError("its config names no architecture") from None


@contextmanager
def _counted(torch: Any, most: int) -> Iterator[None]:
    """Refuses a model that registers more modules than `most`."""
    count = 0

    def counted(*_: object) -> None:
        nonlocal count
        count += 1
        if count > most:
            raise UnknownArchitectureError(f"its config asks for more than {most} modules")

    handle = torch.nn.modules.module.register_module_module_registration_hook(counted)
    try:
        yield
    finally:
        handle.remove()


class _Modules:
    """The modules of a model that is built.

    Attributes:
        converted: The modules that the reader replaces by quantized layers unless told otherwise.
        weights: The names in the file of the weights that `kind` found, by module.
        has_base: Whether the model has a head beside a base model that has a name.
    """

    def __init__(
        self, transformers: Any, torch: Any, model: Any, reader: Format, *, packed: bool
    ) -> None:
        self.weights: dict[str, str] = {}
        self.has_base = bool(model.base_model_prefix) and hasattr(model, model.base_model_prefix)
        self._model = model
        # transformers' own subclasses of Linear use their weight directly, as floats.
        self._takes_subclasses = reader is Format.COMPRESSED_TENSORS and not packed
        self._linear, self._no_grad = torch.nn.Linear, torch.no_grad
        self._modules = dict(model.named_modules(remove_duplicate=False))
        self._parameters = dict(model.named_parameters(remove_duplicate=False))
        self._uses = Counter(map(id, self._parameters.values()))
        self._tied = _tied(model)
        self._output: Any = None
        with suppress(NotImplementedError, AttributeError):
            self._output = model.get_output_embeddings()
        self._rename = _renaming(model, self._parameters)
        kept = model._keep_in_fp32_modules if reader is Format.BITSANDBYTES else None
        self._kept = {
            name for name in self._modules if kept and not reaching(name).isdisjoint(kept)
        }
        takes = _takes(transformers, torch, reader)
        self.converted = [
            name
            for name, module in self._modules.items()
            if takes(module) and not (reader is Format.BITSANDBYTES and name in self._kept)
        ]

    def kind(self, name: str, shape: tuple[int, ...]) -> str:
        """What a weight of the file is: `LINEAR`, `OUTPUT`, or why no reader takes its codes."""
        renamed = self._rename(name)
        if renamed in (MERGED, None):
            return renamed or "converted when it is loaded"
        parameter = self._parameters.get(renamed)
        if parameter is None:
            return f"no weight of {type(self._model).__name__}"
        owner, _, last = renamed.rpartition(".")
        module = self._modules[owner]
        if tuple(parameter.shape) != shape:
            return f"of another shape than in {type(self._model).__name__}"
        if last == "weight":
            self.weights[owner] = name
        if self._uses[id(parameter)] > 1 or renamed in self._tied:
            return f"shared with another module ({type(module).__name__})"
        if last != "weight" or not self._is_linear(module):
            return type(module).__name__
        if owner in self._kept:
            return KEPT
        return OUTPUT if module is self._output else LINEAR

    def _is_linear(self, module: Any) -> bool:
        """Whether the reader replaces this module as a linear layer."""
        if type(module) is self._linear:
            return True
        own = type(module).__module__.startswith("transformers.")
        return self._takes_subclasses and own and isinstance(module, self._linear)

    def loads_packed(self, modules: Collection[str]) -> bool:
        """Whether transformers can load the model when these modules have no ``weight``.

        Loading initializes each module that has no parameters of its own. Some of these initialize
        the weights of modules inside of them, and fail if one has none.
        """
        packed = {name: self._modules[name] for name in modules}
        for module in packed.values():
            module._parameters.pop("weight", None)
        others = (
            module
            for name, module in self._modules.items()
            if name not in packed and next(module.parameters(recurse=False), None) is None
        )
        with quietly(), self._no_grad():
            try:
                for module in others:
                    self._model._init_weights(module)
            except AttributeError:
                return False
        return True


def _tied(model: Any) -> set[str]:
    """The names of parameters that are tied to another one when the model is loaded."""
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    return {*tied.keys(), *tied.values()}


def _takes(transformers: Any, torch: Any, reader: Format) -> Callable[[Any], bool]:
    """The rule by which a reader decides to replace a module by a quantized layer."""
    if reader is Format.BITSANDBYTES:
        conv1d = importlib.import_module("transformers.pytorch_utils").Conv1D
        return lambda module: type(module) is torch.nn.Linear or isinstance(module, conv1d)
    return lambda module: any(kind.__name__ == LINEAR for kind in type(module).__mro__)


def _renaming(model: Any, parameters: Mapping[str, Any]) -> Callable[[str], str | None]:
    """Returns a function from a tensor's name in the file to its name in the model.

    It returns `MERGED` for tensors of which several become one, and None for tensors that loading
    converts otherwise. transformers 5 has such rules. Older ones have none: there, names differ at
    most by the prefix of the base model.
    """
    try:
        mapping = importlib.import_module("transformers.conversion_mapping")
        loading = importlib.import_module("transformers.core_model_loading")
        rules = mapping.get_model_conversion_mapping(model)
    except (ImportError, AttributeError):
        return lambda name: _in_base(name, model.base_model_prefix, parameters)
    renamings = [rule for rule in rules if isinstance(rule, loading.WeightRenaming)]
    converters = [rule for rule in rules if isinstance(rule, loading.WeightConverter)]

    def renamed(name: str) -> str | None:
        found, merged = loading.rename_source_key(name, renamings, converters)
        if merged is not None:
            return MERGED if merged.endswith(".weight") else None
        for suffix in _BESIDE:  # the scales have to be renamed as the weight is
            own, other = (each.removesuffix("weight") + suffix for each in (name, found))
            if loading.rename_source_key(own, renamings, converters)[0] != other:
                return None
        told = _in_base(found, model.base_model_prefix, parameters)
        return told if told in parameters else _in_base(name, model.base_model_prefix, parameters)

    return renamed


def _in_base(name: str, base: str, parameters: Mapping[str, Any]) -> str:
    """The name with or without the base model's prefix, whichever is a parameter."""
    names = (name, f"{base}.{name}", name.removeprefix(f"{base}."))
    return next((each for each in names if each in parameters), name)

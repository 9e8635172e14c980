"""planq: quantization operators that say what they will do before they do it.

Every operation is used the same way: build a descriptor, ``Plan.select`` a kernel for a stream, ask
``can_implement``, ``workspace_size`` and ``precision_guarantee``, then ``run``.
"""

import os
from typing import TYPE_CHECKING, Any

from planq import _verbose, layouts, memory
from planq._core import WORKSPACE_ALIGNMENT, Launch
from planq._policy import policy, set_policy
from planq.arena import Arena
from planq.descriptor import Descriptor, OperandSpec
from planq.dim import Dim
from planq.dtypes import (
    Backend,
    Convention,
    Determinism,
    DType,
    MathPrecision,
    Mode,
    NibbleOrder,
    NonFinite,
    OperandKind,
    Quotient,
    Role,
    Rounding,
)
from planq.errors import (
    ArgumentError,
    CudaError,
    DescriptorError,
    NoKernelError,
    PlanMismatchError,
    PlanqError,
    PolicyError,
    StreamError,
    WorkspaceError,
)
from planq.guarantee import ErrorBound, PrecisionGuarantee
from planq.ops import (
    activation,
    affine,
    attention,
    codebook,
    elementwise,
    gather,
    gguf,
    group,
    kv_cache,
    linear,
    norm,
    optimizer,
    outlier,
    packing,
    position,
    routing,
    statistics,
)
from planq.ops import memory as memory_family
from planq.ops.activation import *
from planq.ops.affine import *
from planq.ops.attention import *
from planq.ops.codebook import *
from planq.ops.elementwise import *
from planq.ops.gather import *
from planq.ops.gguf import *
from planq.ops.group import *
from planq.ops.kv_cache import *
from planq.ops.linear import *
from planq.ops.memory import *
from planq.ops.norm import *
from planq.ops.optimizer import *
from planq.ops.outlier import *
from planq.ops.packing import *
from planq.ops.position import *
from planq.ops.routing import *
from planq.ops.statistics import *
from planq.plan import Plan, Status
from planq.preference import PlanPreference
from planq.qparams import QParams, qparams
from planq.quant_state import QuantState
from planq.registry import BuildInfo, KernelInfo, OperatorInfo, build_info, devices, operators
from planq.scope import Scope
from planq.selection import Body, Candidate, DeviceFacts, Selection, explain
from planq.sparse import COO, CSC, CSR
from planq.stream import HOST, cuda_stream, host_stream

if TYPE_CHECKING:
    from planq import codebooks, positions, recipes
else:

    def __getattr__(name: str) -> Any:
        # Two of these need NumPy, which `import planq` must not import; few programs need recipes.
        if name in ("codebooks", "positions", "recipes"):
            import importlib

            return importlib.import_module(f"planq.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__version__ = build_info().version

__all__ = [
    "COO",
    "CSC",
    "CSR",
    "HOST",
    "WORKSPACE_ALIGNMENT",
    "Arena",
    "ArgumentError",
    "Backend",
    "Body",
    "BuildInfo",
    "Candidate",
    "Convention",
    "CudaError",
    "DType",
    "Descriptor",
    "DescriptorError",
    "Determinism",
    "DeviceFacts",
    "Dim",
    "ErrorBound",
    "KernelInfo",
    "Launch",
    "MathPrecision",
    "Mode",
    "NibbleOrder",
    "NoKernelError",
    "NonFinite",
    "OperandKind",
    "OperandSpec",
    "OperatorInfo",
    "Plan",
    "PlanMismatchError",
    "PlanPreference",
    "PlanqError",
    "PolicyError",
    "PrecisionGuarantee",
    "QParams",
    "QuantState",
    "Quotient",
    "Role",
    "Rounding",
    "Scope",
    "Selection",
    "Status",
    "StreamError",
    "WorkspaceError",
    "__version__",
    "build_info",
    "codebooks",
    "cuda_stream",
    "devices",
    "explain",
    "host_stream",
    "layouts",
    "memory",
    "operators",
    "policy",
    "positions",
    "qparams",
    "recipes",
    "set_policy",
]
# Each family lists its own names, so a new operator changes nothing here.
__all__ += activation.__all__
__all__ += affine.__all__
__all__ += attention.__all__
__all__ += codebook.__all__
__all__ += elementwise.__all__
__all__ += gather.__all__
__all__ += gguf.__all__
__all__ += group.__all__
__all__ += kv_cache.__all__
__all__ += linear.__all__
__all__ += memory_family.__all__
__all__ += norm.__all__
__all__ += optimizer.__all__
__all__ += outlier.__all__
__all__ += packing.__all__
__all__ += position.__all__
__all__ += routing.__all__
__all__ += statistics.__all__

_verbose.install()

if os.environ.get("PLANQ_RECORD"):
    from planq import recording

    recording.install()

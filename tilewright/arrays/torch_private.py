"""Names of torch that are not public and are called here: each once, with what it is called for.

Public calls do the same slower, or none does. `name(torch)` is torch's own function, as nothing
here may import torch; what runs at every call keeps it in a name of its own. Where torch has none
an AttributeError says so, and a test says what is lost.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import TypeVar

# Which GPU is the current one, and its stream as a handle: torch.cuda's own ask for objects.
current_device = attrgetter("_C._cuda_getDevice")
raw_stream = attrgetter("_C._cuda_getCurrentRawStream")
is_capturing = attrgetter("_C._cuda_isCurrentStreamCapturing")
blas_handle = attrgetter("_C._cuda_getCurrentBlasHandle")

# Who looks on: autocast, modes, torch.func, a trace, forward-mode AD.
is_any_autocast_enabled = attrgetter("_C._is_any_autocast_enabled")
modes = attrgetter("_C._len_torch_dispatch_stack")
function_modes = attrgetter("_C._len_torch_function_stack")
active_modes = attrgetter("utils._python_dispatch._get_current_dispatch_mode_stack")
# For a block each; the last is there once a transform is.
without_modes = attrgetter("utils._python_dispatch._disable_current_modes")
without_function_modes = attrgetter("_C.DisableTorchFunction")
without_transforms = attrgetter("_functorch.pyfunctorch.temporarily_clear_interpreter_stack")
transform = attrgetter("_C._functorch.peek_interpreter_stack")
unwrapped = attrgetter("_C._functorch.unwrap_if_dead")
is_batched = attrgetter("_C._functorch.is_legacy_batchedtensor")
fake_tensor = attrgetter("_subclasses.fake_tensor.FakeTensor")
trace = attrgetter("_C._get_tracing_state")
forward_ad = attrgetter("autograd.forward_ad")
forward_mode = attrgetter("autograd.forward_ad._set_fwd_grad_enabled")  # on or off, for a block
forward_level = attrgetter("autograd.forward_ad._current_level")  # a number, -1 outside

# Results: below autograd, and without the dispatcher on the way.
below_autograd = attrgetter("_C._AutoDispatchBelowADInplaceOrView")
nested_view = attrgetter("_nested_view_from_buffer")
dispatch_keys = attrgetter("_C._dispatch_keys")
empty_strided_here = attrgetter("_C._dynamo.guards._empty_strided_cpu")
empty_strided = attrgetter("_C._dynamo.guards._empty_strided_cuda")
reinterpreted = attrgetter("_C._dynamo.guards._reinterpret_tensor")

frame_callback = attrgetter("_C._dynamo.eval_frame.get_eval_frame_callback")  # compiles calls

tensor_guards = attrgetter("_C._dynamo.guards.TensorGuards")  # asks of many tensors in one call

# Products of groups as torch has them, whatever its public names lead to.
grouped = attrgetter("_C._VariableFunctions._grouped_mm")

# How a compiler takes torch's functions: by whatever its names led to when this was worked out.
compiler_rules = attrgetter("_dynamo.trace_rules")

int8_product = attrgetter("_int_mm")  # beside which one-bit products are measured

_Function = TypeVar("_Function", bound=Callable[..., object])


def constant(function: _Function) -> _Function:
    """What `torch.compiler.assume_constant_result` sets: a compiler calls the function once where
    it would trace into it. That one needs torch, and loads its compilers: 1.1 s of the 1.3 that a
    process's first product took on an AMD EPYC.
    """
    vars(function)["_dynamo_marked_constant"] = True
    return function

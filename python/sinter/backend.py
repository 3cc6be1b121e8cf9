"""An ONNX backend (onnx.backend.base): prepare, run_model, run_node, supports_device. Needs the package onnx.

    import sinter.backend
    outputs = sinter.backend.run_model(onnx.load("net.onnx"), [x])
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping, Sequence, Union

import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from . import _arrays, _core
from ._program import Program, compile

if TYPE_CHECKING:
    from ._arrays import Array

    Inputs = Union[Sequence[Any], Mapping[str, Any], Array]


class SinterBackendRep(BackendRep):
    """A prepared model."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def run(self, inputs: Inputs, **kwargs: Any) -> tuple[Any, ...]:
        """Runs. inputs: arrays in the model's order, arrays by name, or the one array. Gives a named tuple of the outputs. Raises what a Program raises."""
        import numpy as np
        if isinstance(inputs, Mapping):
            values = self.program._by_name((), inputs)
        elif isinstance(inputs, np.ndarray):
            values = (inputs,)
        else:
            values = tuple(inputs)
        results = self.program._core.run(values, None, None, self.program._adapt, _arrays.adapt_output)
        names = [o.name for o in self.program.outputs]
        return namedtupledict("Outputs", names)(*[_arrays.array_of(t) for t in results])


class SinterBackend(Backend):
    """The backend, as onnx.backend.test takes it."""

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """Whether all operators of the model have a meaning here."""
        try:
            compile(model)
        except (_core.Unsupported, _core.FormatError):
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(cls, model: Any, device: str = "CPU", **kwargs: Any) -> SinterBackendRep:
        """Checks and compiles a model: an onnx.ModelProto, a path, or bytes.

        kwargs   those of sinter.compile: threads, fuse, check, interpret, cache, compiler

        Raises onnx.checker.ValidationError, Unsupported, InvalidArgument for a device other than "CPU".
        """
        if not cls.supports_device(device):
            raise _core.InvalidArgument(f"the device is {device!r}, wanted 'CPU'")
        if isinstance(model, onnx.ModelProto):
            onnx.checker.check_model(model)
        return SinterBackendRep(compile(model, **kwargs))

    @classmethod
    def run_model(cls, model: Any, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """prepare and run at once."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(cls, node: Any, inputs: Any, device: str = "CPU", outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
                 **kwargs: Any) -> tuple[Any, ...]:
        """Runs one node, an onnx.NodeProto, on arrays in the order of its inputs. opset_imports or opset_version in kwargs: which version of the operator."""
        import numpy as np
        opsets = kwargs.pop("opset_imports", None)
        if opsets is None:
            version = kwargs.pop("opset_version", None) or onnx.defs.onnx_opset_version()
            opsets = [helper.make_opsetid("", version)] + ([helper.make_opsetid(node.domain, 1)] if node.domain else [])
        names = [n for n in dict.fromkeys(node.input) if n]
        arrays = dict(zip((n for n in node.input if n), (np.asarray(a) for a in inputs)))
        ins = [helper.make_tensor_value_info(n, _arrays.number_of(arrays[n].dtype), arrays[n].shape) for n in names]
        outs = [onnx.ValueInfoProto(name=n) for n in node.output if n]
        graph = helper.make_graph([node], "node", ins, outs)
        model = helper.make_model(graph, opset_imports=opsets)
        return SinterBackendRep(compile(model, **kwargs)).run([arrays[n] for n in names])

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for "CPU", also with a number: "CPU:0"."""
        return device.split(":")[0].upper() == "CPU"


is_compatible = SinterBackend.is_compatible
prepare = SinterBackend.prepare
run_model = SinterBackend.run_model
run_node = SinterBackend.run_node
supports_device = SinterBackend.supports_device

__all__ = ["SinterBackend", "SinterBackendRep", "is_compatible", "prepare", "run_model", "run_node", "supports_device"]

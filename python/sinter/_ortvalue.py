"""Values and bindings in the manner of onnxruntime: OrtValue holds an array in the CPU's memory, IOBinding says where inputs come from and outputs go."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Sequence

from . import _arrays, _core

if TYPE_CHECKING:
    from ._arrays import Array, DTypeLike
    from ._session import InferenceSession


def _check_device(device_type: str) -> None:
    if device_type.lower() not in ("cpu", "cuda_pinned"):
        raise _core.InvalidArgument(f"the device is {device_type!r}, wanted 'cpu'")


class OrtValue:
    """A tensor in the CPU's memory. The memory is shared with the array that it was made of, not copied."""
    __slots__ = ("_array", "_tensor")

    def __init__(self, array: Array, tensor: _core.Tensor | None = None) -> None:
        self._array = array
        self._tensor = tensor

    @classmethod
    def _of(cls, tensor: _core.Tensor) -> OrtValue:
        return cls(_arrays.array_of(tensor), tensor)

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: Array, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """A value over the array's memory. Raises InvalidArgument for a device other than "cpu" and a dtype that sinter has not."""
        import numpy as np
        _check_device(device_type)
        array = np.asarray(numpy_obj)
        _arrays.number_of(array.dtype)
        return OrtValue(array)

    @staticmethod
    def ortvalue_from_numpy_with_onnx_type(data: Array, onnx_element_type: int) -> OrtValue:
        """The same for memory whose dtype NumPy cannot name: onnx_element_type is a number of TensorProto.DataType, as 16 for bfloat16 over uint16."""
        wanted = _arrays.numpy_dtype(_arrays.number_of(onnx_element_type))
        if wanted.itemsize != data.dtype.itemsize:
            raise _core.InvalidArgument(f"elements of {data.dtype.itemsize} bytes cannot be {wanted}, which has {wanted.itemsize}")
        return OrtValue(data.view(wanted))

    @staticmethod
    def ortvalue_from_shape_and_type(shape: Sequence[int], element_type: DTypeLike, device_type: str = "cpu", device_id: int = 0) -> OrtValue:
        """A value of zeros."""
        import numpy as np
        _check_device(device_type)
        return OrtValue(np.zeros(tuple(shape), _arrays.numpy_dtype(_arrays.number_of(element_type))))

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False) -> OrtValue:
        """A value over the memory of a DLPack exporter."""
        import numpy as np
        array: Array = np.from_dlpack(data)
        return OrtValue(array.view(np.bool_) if is_bool_tensor else array)

    def numpy(self) -> Array:
        """The array; its memory is not copied."""
        return self._array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        import numpy as np
        return np.array(self._array, dtype=dtype) if copy else np.asarray(self._array, dtype=dtype)

    def __dlpack__(self, **kwargs: Any) -> Any:
        """A DLPack capsule over the memory."""
        return self._tensor.__dlpack__() if self._tensor is not None else self._array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def shape(self) -> list[int]:
        """Sizes."""
        return list(self._array.shape)

    def element_type(self) -> int:
        """The number of TensorProto.DataType."""
        return _arrays.number_of(self._array.dtype)

    def data_type(self) -> str:
        """"tensor(float)"."""
        return _arrays.type_word(self.element_type())

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Bytes of all elements."""
        return int(self._array.nbytes)

    def device_name(self) -> str:
        """"cpu"."""
        return "cpu"

    def has_value(self) -> bool:
        """True."""
        return True

    def is_tensor(self) -> bool:
        """True: there are no other values."""
        return True

    def is_sparse_tensor(self) -> bool:
        """False."""
        return False

    def is_tensor_sequence(self) -> bool:
        """False."""
        return False

    def update_inplace(self, np_arr: Array) -> None:
        """Copies the array's elements into the value. Raises InvalidArgument when dtype or shape differ."""
        if np_arr.shape != self._array.shape or np_arr.dtype != self._array.dtype:
            raise _core.InvalidArgument(f"the array is {np_arr.dtype}{list(np_arr.shape)}, wanted {self._array.dtype}{self.shape()}")
        self._array[...] = np_arr


def _at_pointer(pointer: int, shape: Sequence[int], dtype: DTypeLike) -> Array:
    """An array over memory that the caller keeps alive."""
    import ctypes

    import numpy as np
    kind = _arrays.numpy_dtype(_arrays.number_of(dtype))
    count = 1
    for n in shape:
        count *= int(n)
    memory: Any = (ctypes.c_char * (count * kind.itemsize)).from_address(pointer) if count else b""
    return np.ndarray(tuple(shape), kind, memory)


class IOBinding:
    """Where inputs come from and outputs go. Made by InferenceSession.io_binding."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self._in: dict[str, Any] = {}
        self._out: dict[str, OrtValue | None] = {}
        self._results: dict[str, OrtValue] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Binds an input to an array, which is not copied."""
        self._in[self._input(name)] = arr_on_cpu

    def bind_input(self, name: str, device_type: str, device_id: int, element_type: DTypeLike, shape: Sequence[int], buffer_ptr: int) -> None:
        """Binds an input to row-major memory at an address, which the caller keeps alive."""
        _check_device(device_type)
        self._in[self._input(name)] = _at_pointer(buffer_ptr, shape, element_type)

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an input to a value."""
        self._in[self._input(name)] = ortvalue._array

    def bind_output(self, name: str, device_type: str = "cpu", device_id: int = 0, element_type: DTypeLike | None = None,
                    shape: Sequence[int] | None = None, buffer_ptr: int | None = None) -> None:
        """Binds an output: to row-major memory at an address of this dtype and shape, or, without one, to memory that each run allocates."""
        _check_device(device_type)
        if buffer_ptr is None:
            self._out[self._output(name)] = None
            return
        if element_type is None or shape is None:
            raise _core.InvalidArgument(f"output '{name}': memory at an address needs element_type and shape")
        self._out[self._output(name)] = OrtValue(_at_pointer(buffer_ptr, shape, element_type))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an output to a value's memory."""
        self._out[self._output(name)] = ortvalue

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._in.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs."""
        self._out.clear()
        self._results.clear()

    def synchronize_inputs(self) -> None:
        """Nothing to do: all is the CPU's memory."""

    def synchronize_outputs(self) -> None:
        """Nothing to do: all is the CPU's memory."""

    def get_outputs(self) -> list[OrtValue]:
        """The bound outputs' values after a run, in the order in which they were bound. Raises InvalidArgument before one."""
        missing = [n for n in self._out if n not in self._results]
        if missing:
            raise _core.InvalidArgument(f"outputs {missing} have no value before run_with_iobinding")
        return [self._results[n] for n in self._out]

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """The same."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Array]:
        """The same as NumPy arrays; they are on the CPU already, so nothing is copied."""
        return [v.numpy() for v in self.get_outputs()]

    def _input(self, name: str) -> str:
        if name not in self._session._inputs:
            raise _core.InvalidArgument(f"no input is called '{name}'; there are {self._session._inputs}")
        return name

    def _output(self, name: str) -> str:
        if name not in self._session._output_index:
            raise _core.InvalidArgument(f"no output is called '{name}'; there are {self._session._output_names}")
        return name

    def _buffers(self, names: list[str]) -> tuple[Any, ...]:
        bound = [self._out.get(n) for n in names]
        return tuple(None if v is None else v._array for v in bound)

    def _take(self, names: list[str], results: list[Any]) -> None:
        from ._program import fitted
        self._results = {}
        for name, result in zip(names, results):
            if name not in self._out:
                continue
            bound = self._out[name]
            if bound is None:
                self._results[name] = OrtValue._of(result)
            else:
                self._results[name] = bound if result is None or bound._array.shape == result else OrtValue(fitted(bound._array, result))

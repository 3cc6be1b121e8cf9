"""Element types and arrays: between numbers of ONNX's TensorProto.DataType, sinter's names, ONNX's words and NumPy.

NumPy is imported when the first array is needed, so that `import sinter` alone is quick. The types that NumPy lacks are those of the
package ml_dtypes; without it their arrays are the bare bytes, uint8 or uint16.
"""
from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Union

from . import _core

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[Any]
    DTypeLike = Union[str, int, np.dtype[Any], type]


class _Row(NamedTuple):
    number: int     # of TensorProto.DataType
    name: str       # sinter's
    word: str       # as in "tensor(float)"
    numpy: str      # NumPy's, or ml_dtypes'
    storage: str    # what holds it where ml_dtypes is missing; "" when NumPy has it


# One row for each dtype.
_ROWS = [_Row(*row) for row in (
    (1, "f32", "float", "float32", ""), (11, "f64", "double", "float64", ""), (10, "f16", "float16", "float16", ""),
    (16, "bf16", "bfloat16", "bfloat16", "uint16"),
    (17, "f8e4m3fn", "float8e4m3fn", "float8_e4m3fn", "uint8"), (18, "f8e4m3fnuz", "float8e4m3fnuz", "float8_e4m3fnuz", "uint8"),
    (19, "f8e5m2", "float8e5m2", "float8_e5m2", "uint8"), (20, "f8e5m2fnuz", "float8e5m2fnuz", "float8_e5m2fnuz", "uint8"),
    (24, "f8e8m0", "float8e8m0", "float8_e8m0fnu", "uint8"), (23, "f4e2m1", "float4e2m1", "float4_e2m1fn", "uint8"),
    (3, "i8", "int8", "int8", ""), (5, "i16", "int16", "int16", ""), (6, "i32", "int32", "int32", ""), (7, "i64", "int64", "int64", ""),
    (2, "u8", "uint8", "uint8", ""), (4, "u16", "uint16", "uint16", ""), (12, "u32", "uint32", "uint32", ""),
    (13, "u64", "uint64", "uint64", ""), (9, "bool", "bool", "bool", ""),
    (22, "i4", "int4", "int4", "int8"), (21, "u4", "uint4", "uint4", "uint8"), (26, "i2", "int2", "int2", "int8"),
    (25, "u2", "uint2", "uint2", "uint8"))]
_BY_NUMBER = {row.number: row for row in _ROWS}
_BY_NUMPY = {row.numpy: row for row in _ROWS}
_BY_WORD = {row.word: row for row in _ROWS}


def type_word(number: int) -> str:
    """ONNX's word for a tensor of a dtype, as "tensor(float)"; "?" for what is no tensor of numbers."""
    row = _BY_NUMBER.get(number)
    return f"tensor({row.word})" if row else "?"


def name_of(number: int) -> str | None:
    """sinter's name of a dtype, as "f32"; None for a number that is none."""
    row = _BY_NUMBER.get(number)
    return row.name if row else None


def number_of(dtype: DTypeLike) -> int:
    """The number of a dtype, which is given as a number, as sinter's name ("f32"), as ONNX's ("tensor(float)", "float"), or as NumPy's."""
    if isinstance(dtype, int) and not isinstance(dtype, bool) and dtype in _BY_NUMBER:
        return dtype
    if isinstance(dtype, str):
        number = _core.dtype_number(dtype)
        if number:
            return number
        word = dtype[7:-1] if dtype.startswith("tensor(") and dtype.endswith(")") else dtype
        if word in _BY_WORD:
            return _BY_WORD[word].number
    import numpy as np
    try:
        name = np.dtype(dtype).name  # type: ignore[arg-type]
    except TypeError:
        name = str(dtype)
    row = _BY_NUMPY.get(name)
    if row is None:
        raise _core.InvalidArgument(f"{dtype!r} is no dtype that sinter has; \"f32\" or numpy.float32 would be one")
    return row.number


@cache
def numpy_dtype(number: int) -> np.dtype[Any]:
    """NumPy's dtype of a number; that of the bare bytes where it needs ml_dtypes and that is missing."""
    import numpy as np
    row = _BY_NUMBER[number]
    if not row.storage:
        return np.dtype(row.numpy)
    try:
        import ml_dtypes
        narrow: np.dtype[Any] = np.dtype(getattr(ml_dtypes, row.numpy))
        return narrow
    except (ImportError, AttributeError):
        return np.dtype(row.storage)


@cache
def _ndarray() -> type[Any]:
    import numpy as np
    return np.ndarray


_HOST = ((1, 0), (3, 0))                # of DLPack's devices: its memory, also when it is pinned for CUDA
_PLACES = {1: "cpu", 2: "cuda", 4: "opencl"}


def place_name(place: tuple[int, int]) -> str:
    """The name of a device that DLPack numbers: "cpu", "cuda:0"."""
    name = _PLACES.get(place[0], f"device {place[0]}")
    return name if place[0] == 1 else f"{name}:{place[1]}"


def place_of(value: Any) -> tuple[int, int] | None:
    """Where a DLPack exporter's memory lies; None when it is none."""
    try:
        kind, number = value.__dlpack_device__()
        return int(kind), int(number)
    except (AttributeError, TypeError, ValueError):
        return None


class DeviceArray:
    """An array in the memory of the device that a program runs on: a result of a run whose inputs lay there, or what Program.put made.

    A program for the same device takes it as an input or as out=; nothing is copied. Others take it by DLPack, as torch.from_dlpack(a) does, where
    the device's memory has addresses (CUDA). numpy() copies it to the host.

    shape, dtype    as a NumPy array has them
    device          its name, "cuda:0"
    """
    __slots__ = ("_tensor",)

    def __init__(self, tensor: _core.Tensor) -> None:
        self._tensor = tensor

    @property
    def shape(self) -> tuple[int, ...]:
        return self._tensor.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return numpy_dtype(self._tensor.dtype)

    @property
    def device(self) -> str:
        return place_name(self._tensor.__dlpack_device__())

    def numpy(self) -> Array:
        """A copy on the host. Raises DeviceError."""
        array: Array = _ndarray()(self.shape, self.dtype)
        self._tensor.read(array.reshape(-1).view("u1"))
        return array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        if copy is False:
            raise ValueError("an array on a device becomes one on the host only as a copy")
        array = self.numpy()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack__(self, **words: Any) -> Any:
        return self._tensor.__dlpack__(**words)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.__dlpack_device__()

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} on {self.device}>"


def array_of(tensor: _core.Tensor) -> Any:
    """An array over a result's memory, which is not copied: NumPy's on the host."""
    if tensor.on_device:
        return DeviceArray(tensor)
    return _ndarray()(tensor.shape, numpy_dtype(tensor.dtype), tensor)


def is_elsewhere(value: Any) -> str | None:
    """The name of the device that an array lies on; None for what is the host's, or no array."""
    place = place_of(value)
    return None if place is None or place in _HOST else place_name(place)


def bare(array: Array) -> tuple[Array, int] | None:
    """An array of a type that NumPy lacks as its bare bytes, with the number of the dtype; None for other arrays. Integers below 8 bits are copied."""
    row = _BY_NUMPY.get(array.dtype.name)
    if row is None or not row.storage:
        return None
    if "int" in row.word:               # ml_dtypes leaves the bits above an int4 open, the library wants the number in a byte
        return array.astype(row.storage), row.number
    return array.view(row.storage), row.number


def dense(array: Array) -> Array:
    """The array, or a row-major copy of one that is not. Keeps rank 0, which numpy.ascontiguousarray does not."""
    return array if array.flags.c_contiguous else array.copy()


def adapter(names: list[str], numbers: list[int], kind: str = "input") -> Callable[[Any, int], tuple[Any, int]]:
    """A function for _core that makes memory with a dtype of what is neither a plain buffer nor DLPack: narrow types, other byte orders, Python's numbers."""
    def adapt(value: Any, index: int) -> tuple[Any, int]:
        import numpy as np
        name = f"{kind} '{names[index]}'" if index < len(names) else f"{kind} {index}"
        number = numbers[index] if index < len(numbers) else 0
        if isinstance(value, DeviceArray):
            value = value.numpy()
        elif is_elsewhere(value):
            raise _core.InvalidArgument(f"{name} lies on {is_elsewhere(value)}; it can be taken from there by a program that runs there, "
                                        "and if its dtype is one of DLPack's numbers of 8 bits and more")
        try:
            array = value if isinstance(value, np.ndarray) else np.asarray(value, numpy_dtype(number) if number in _BY_NUMBER else None)
        except (TypeError, ValueError, OverflowError, RuntimeError) as e:
            raise _core.InvalidArgument(f"{name} is a {type(value).__name__} that makes no array: {e}") from e
        pair = bare(array)
        if pair:
            return dense(pair[0]), pair[1]
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        row = _BY_NUMPY.get(array.dtype.name)
        if row is None:
            wanted = f", wanted {name_of(number)}" if name_of(number) else ""
            raise _core.InvalidArgument(f"{name} has the dtype {array.dtype}{wanted}")
        return dense(array), row.number
    return adapt


def adapt_output(value: Any, index: int) -> tuple[Any, int]:
    """The same for buffers that results are written to: these are never copied."""
    import numpy as np
    if is_elsewhere(value):
        raise _core.InvalidArgument(f"output {index} is to lie on {is_elsewhere(value)}: only a program that runs there writes to it")
    if isinstance(value, np.ndarray) and value.flags.writeable and value.flags.c_contiguous:
        pair = bare(value)
        if pair and np.shares_memory(pair[0], value):
            return pair
    raise _core.InvalidArgument(f"output {index}: a writable, row-major array or buffer is wanted, not {type(value).__name__}"
                                + (f" of strides {value.strides} and dtype {value.dtype}" if isinstance(value, np.ndarray) else ""))

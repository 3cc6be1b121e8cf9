"""Models, graphs by calls, and programs: sinter's own interface."""
from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Sequence, Union, overload

from . import _arrays, _core

if TYPE_CHECKING:
    from ._arrays import Array, DTypeLike
    from ._evidence import Evidence

    Dim = Union[int, str, None]
    Attribute = Union[bool, float, Sequence[int], Sequence[float], DTypeLike]
    ModelLike = Union["Model", "Graph", str, os.PathLike[str], bytes, bytearray, memoryview, Any]


class NodeArg:
    """An input or output as the model declares it.

    name     its name
    type     "tensor(float)"; "?" when it is not declared, or no tensor of numbers
    dtype    sinter's name of the element type, "f32"; None as above
    shape    a list: an int, a name (equal names are equal sizes) or None for each axis; None when the rank is not declared
    """
    __slots__ = ("name", "type", "dtype", "shape", "number")

    def __init__(self, port: _core.PortTuple) -> None:
        self.name, self.number, shape = port
        self.type = _arrays.type_word(self.number)
        self.dtype = _arrays.name_of(self.number)
        self.shape: list[Dim] | None = None if shape is None else list(shape)

    def __repr__(self) -> str:
        return f"NodeArg(name='{self.name}', type='{self.type}', shape={self.shape})"

    __str__ = __repr__


class Model:
    """A model that was read: its inputs, outputs and metadata. Made by load() and Graph.finish(); a package has one too."""
    __slots__ = ("_core", "inputs", "outputs", "metadata")

    def __init__(self, core: _core.Model | _core.Program) -> None:
        self._core = core
        self.inputs = [NodeArg(p) for p in core.inputs]
        self.outputs = [NodeArg(p) for p in core.outputs]
        self.metadata: dict[str, str] = dict(core.metadata)

    def __repr__(self) -> str:
        return f"<Model ({', '.join(i.name for i in self.inputs)}) -> ({', '.join(o.name for o in self.outputs)})>"


def load(model: ModelLike, name: str | None = None) -> Model:
    """Reads a model.

    model    the path of an ONNX file (or of one in ONNX's text syntax, .onnxtxt), the file's bytes, an onnx.ModelProto, a Graph, or a Model.
             A file stays mapped: it must not change while the model lives.
    name     for messages, and its folder is where external data of a model from bytes may lie

    Raises FileError, FormatError, NoMemory.
    """
    if isinstance(model, Model):
        return model
    if isinstance(model, Graph):
        return model.finish()
    if isinstance(model, (str, os.PathLike)):
        return Model(_core.Model(path=model))
    if hasattr(model, "SerializeToString"):
        model = model.SerializeToString()
    if isinstance(model, (bytes, bytearray, memoryview)):
        return Model(_core.Model(data=model, name=name))
    raise TypeError(f"a model is a path, bytes, an onnx.ModelProto or a sinter.Graph, not {type(model).__name__}")


# ---- graphs by calls ---------------------------------------------------------------------------------------------------


class Value:
    """A tensor of a graph that is being built."""
    __slots__ = ("_graph", "_id")

    def __init__(self, graph: Graph, number: int) -> None:
        self._graph = graph
        self._id = number

    def __repr__(self) -> str:
        return f"<Value {self._id}>"


def _attribute(name: str, value: Any) -> str:
    """The text form of an attribute, as sn_graph_op reads it."""
    if name in ("to", "dtype") and not isinstance(value, int):
        value = _arrays.number_of(value)
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (bool, int)):
        return f"{name}={int(value)}"
    if isinstance(value, float):
        return f"{name}={value!r}"
    if isinstance(value, str):
        if ("'" in value and '"' in value) or "\0" in value:
            raise _core.InvalidArgument(f"attribute '{name}' is {value!r}: a text with both kinds of quotes cannot be given")
        quote = '"' if "'" in value else "'"
        return f"{name}={value}" if _core.dtype_number(value) else f"{name}={quote}{value}{quote}"
    if isinstance(value, Iterable):
        items = list(value)
        if all(isinstance(v, int) for v in items):
            return f"{name}=[{','.join(str(int(v)) for v in items)}]"
        if all(isinstance(v, (int, float)) for v in items):
            return f"{name}=[{','.join(repr(float(v)) for v in items)}]"
    raise _core.InvalidArgument(f"attribute '{name}' is {value!r}, wanted an int, a float, a str, or a list of ints or floats")


class Graph:
    """A model written down by calls, the same as those of sinter.h:

        g = Graph()
        x = g.input("x", "f32", ["n", 768])
        w = g.const(weights)
        g.output("y", g.op("Relu", g.op("MatMul", x, w)))
        program = compile(g)

    A call that fails ends the graph.
    """
    __slots__ = ("_core",)

    def __init__(self) -> None:
        self._core = _core.Graph()

    def input(self, name: str, dtype: DTypeLike, shape: Sequence[Dim]) -> Value:
        """An input. A size is an int, a name (equal names are equal sizes), or None: known only when it runs. Raises InvalidArgument."""
        return Value(self, self._core.input(name, _arrays.number_of(dtype), tuple(shape)))

    def const(self, array: Any) -> Value:
        """A constant: an array, anything that NumPy makes an array of, or a DLPack tensor. Its elements are copied. Raises InvalidArgument."""
        return Value(self, self._core.const(array, _arrays.adapter(["constant"], [], "the")))

    @overload
    def op(self, op: str, /, *inputs: Value | None, outputs: None = None, **attributes: Attribute) -> Value: ...
    @overload
    def op(self, op: str, /, *inputs: Value | None, outputs: int, **attributes: Attribute) -> tuple[Value, ...]: ...

    def op(self, op: str, /, *inputs: Value | None, outputs: int | None = None, **attributes: Any) -> Value | tuple[Value, ...]:
        """An operator.

        op          ONNX's name for an operator of the default domain, "com.microsoft.NAME", or "sinter.NAME": one of sinter's own primitives
                    (`sinter ops` lists all)
        inputs      values of this graph; None for an optional input that is left out
        outputs     how many results are wanted: a tuple of so many values. Without it one value, which is not in a tuple
        attributes  ints, floats, texts, lists of ints or floats; for `to` and `dtype` also a dtype: to="f16", to=numpy.float16

        Raises InvalidArgument, FormatError; what the operator itself refuses comes from compile() or the first run.
        """
        numbers = []
        for i, v in enumerate(inputs):
            if v is not None and (not isinstance(v, Value) or v._graph is not self):
                raise _core.InvalidArgument(f"input {i} of {op} is {v!r}, wanted a value of this graph (Graph.const makes one of an array) or None")
            numbers.append(0 if v is None else v._id)
        text = " ".join(_attribute(k, v) for k, v in attributes.items() if v is not None)
        made = self._core.op(op, text or None, tuple(numbers), 1 if outputs is None else outputs)
        values = tuple(Value(self, n) for n in made)
        return values[0] if outputs is None else values

    def output(self, name: str, value: Value) -> None:
        """Makes a value an output of the model. Outputs keep the order of these calls. Raises InvalidArgument."""
        if not isinstance(value, Value) or value._graph is not self:
            raise _core.InvalidArgument(f"output '{name}' is {value!r}, wanted a value of this graph")
        self._core.output(name, value._id)

    def finish(self) -> Model:
        """Ends the graph and gives the model. Raises what a call before it reported."""
        return Model(self._core.finish())


# ---- programs ------------------------------------------------------------------------------------------------------------


class Program:
    """A compiled model. Kernels are compiled by the first call, or by prepare(), and again for sizes that those there do not serve.

    Any number of threads may call one program; Python's lock is released while it runs. Ctrl-C ends a run.
    """
    __slots__ = ("model", "_core", "_names", "_numbers", "_adapt")

    def __init__(self, model: Model, core: _core.Program) -> None:
        self.model = model
        self._core = core
        self._names = [p.name for p in model.inputs]
        self._adapt = _arrays.adapter(self._names, [p.number for p in model.inputs])

    @property
    def inputs(self) -> list[NodeArg]:
        """The model's inputs, in the order in which a call takes them."""
        return self.model.inputs

    @property
    def outputs(self) -> list[NodeArg]:
        """The model's outputs, in the order in which a call gives them."""
        return self.model.outputs

    def __call__(self, *arrays: Any, out: Sequence[Any] | None = None, **named: Any) -> Any:
        """Runs.

        arrays, named   the inputs, in the model's order, or by name: NumPy arrays of any strides, DLPack tensors, buffers; they are not copied.
                        What is none of these becomes an array of the declared dtype. Tensors of PyTorch and others that lie, row-major, on the device
                        where the program runs are read there.
        out             a writable row-major array, or None, for each output: where it is written. It must not overlap an input; on a device it may
                        lie exactly where one lies.

        Gives the output's NumPy array, or a tuple of them when the model has not exactly one; when an input lies on the device, they are DeviceArrays
        there. Raises InvalidArgument for inputs that do not fit
        (which, what was found, what was wanted) and for data that make an index leave its axis; CompileError, NoMemory, Unsupported.
        """
        if named:
            arrays = self._by_name(arrays, named)
        results = self._core.run(arrays, tuple(out) if out is not None else None, None, self._adapt, _arrays.adapt_output)
        if out is None:
            made = tuple(_arrays.array_of(t) for t in results)
        else:
            made = tuple(_arrays.array_of(t) if given is None else fitted(given, t) for given, t in zip(out, results))
        return made[0] if len(made) == 1 else made

    def _by_name(self, arrays: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        rest = self._names[len(arrays):]
        wrong = [n for n in named if n not in rest]
        missing = [n for n in rest if n not in named]
        if wrong or missing:
            raise _core.InvalidArgument((f"no inputs are called {wrong}; " if wrong else "") + f"wanted: {rest}" + (f", missing: {missing}" if missing else ""))
        return arrays + tuple(named[n] for n in rest)

    @property
    def device(self) -> str:
        """Where it runs and its DeviceArrays lie: "cpu", "cuda:0"."""
        return _arrays.place_name(self._core.place)

    def put(self, array: Any) -> _arrays.DeviceArray:
        """A copy of an array on the device where the program runs. Raises NoMemory, with the figure, and InvalidArgument for what makes no array."""
        import numpy as np
        given = array if isinstance(array, np.ndarray) else np.asarray(array)
        return _arrays.DeviceArray(self._core.put(_arrays.dense(given), _arrays.adapter(["array"], [], "the")))

    def prepare(self, *shapes: Any) -> None:
        """Compiles for inputs of these shapes, so that the first call does not have to.

        shapes   for each input a sequence of ints (the dtype is the declared one) or an array. A model whose kernels depend on an input's values
                 needs that array: InvalidArgument.
        """
        self._core.prepare(_shapes(self.model, shapes), self._adapt)

    def profile(self, *arrays: Any, runs: int = 20) -> Evidence:
        """Runs so many times and measures each kernel: what explain() gives then, with the medians as `ms` of the kernels. Results are dropped.

        arrays   the inputs, in the model's order, as for a call. Raises what a call raises; Unsupported for packages and for interpreted programs.
        """
        self._core.prepare(arrays, self._adapt, max(runs, 1))
        return self.explain()

    def explain(self) -> Evidence:
        """What the last run (or prepare) did. Raises InvalidArgument before the first one."""
        import json

        from ._evidence import Evidence
        return Evidence(json.loads(self._core.explain(True)), self._core.explain(False))

    @property
    def compiling(self) -> bool:
        """Whether kernels are being compiled while calls go on without them (background=True). prepare() waits for them."""
        return self._core.compiling

    @property
    def variants(self) -> int:
        """How many sets of kernels were compiled: one for each set of sizes that needed its own."""
        return self._core.variants

    def __repr__(self) -> str:
        return f"<Program of {self.model!r}>"


def _shapes(model: Model, shapes: Sequence[Any]) -> tuple[Any, ...]:
    """Sequences of ints as pairs (dtype number, sizes), with the declared dtypes; arrays as they are."""
    return tuple((model.inputs[i].number if i < len(model.inputs) else 0, tuple(int(n) for n in s)) if isinstance(s, (list, tuple)) else s
                 for i, s in enumerate(shapes))


def fitted(given: Any, shape: tuple[int, ...] | None) -> Any:
    """The caller's buffer as an array of the result's shape; what lies on a device (None), and a DLPack tensor of others, as it is."""
    if shape is None:
        return given
    import numpy as np
    if not isinstance(given, np.ndarray) and _arrays.place_of(given):
        return given
    array = given if isinstance(given, np.ndarray) else np.asarray(given)
    if array.shape == shape:
        return array
    count = 1
    for n in shape:
        count *= n
    return array.reshape(-1)[:count].reshape(shape)


def compile(model: ModelLike, *, threads: int = 0, fuse: bool = True, check: bool = False, interpret: bool = False, cache: str | None = None,
            compiler: str | None = None, device: str | None = None, background: bool = False,
            rules: str | os.PathLike[str] | None = None, allow: str | None = None) -> Program:
    """Makes a program of a model (see load for what may be one).

    threads     at most so many for each run; 0: one for each processor that the process may use
    fuse        False: one kernel for each operator
    check       True: each kernel's results are compared with the reference interpreter; a difference fails the run. Slow
    interpret   True: no kernels, the reference interpreter runs it. Needs no C compiler; very slow
    cache       folder of compiled kernels; "": none; None: the user's
    compiler    C compiler of the kernels; None: the first of cc, gcc, clang that is there
    device      where kernels run: "cpu", or another target, as NAME or NAME:N for its device N; None: the CPU
    background  True: calls never wait for the compiler, also when sizes are new: loops of the library, slower, answer until kernels are there
    rules       a file of rewriting and fusion rules, as `sinter explain --rules` takes it; explain() says which were applied
    allow       what rules may assume, as "finite,reassoc"; None: only what changes no bit

    Raises what load raises, and Unsupported, which names all operators without a meaning.
    """
    read = load(model)
    assert isinstance(read._core, _core.Model)
    return Program(read, _core.Program(read._core, threads, fuse, check, interpret, cache, compiler, device, background=background,
                                       rules=None if rules is None else os.fspath(rules), allow=allow))


def export(model: ModelLike, path: str | os.PathLike[str], *inputs: Any, isa: str | None = None, weights: str = "file", threads: int = 1,
           ranges: Mapping[str, int] | None = None, compiler: str | None = None, rules: str | os.PathLike[str] | None = None, allow: str | None = None) -> None:
    """Writes a model as a file that needs no compiler: docs/embedded.md.

    path       its ending says what: .c (and .h beside it), .o, .so, or .sinter, a package for load_package
    inputs     for each input a sequence of ints, its sizes, or an array, where shapes or branches depend on its values
    isa        "plain", "sse2", "avx2", "avx512", "avx512vnni", "neon", "auto"; None: "plain" for .c, else this machine's
    weights    "file", "bin" (in NAME.bin beside it) or "pointer" (there, and the caller gives its bytes)
    threads    the most that a run may use
    ranges     symbolic sizes that stay parameters, each with its least value; the most is the size in the inputs
    rules      a file of rewriting and fusion rules, and what rules may assume, as compile() takes them
    allow

    Raises Unsupported, which names the operator that has no such form; InvalidArgument, CompileError, FileError.
    """
    read = load(model)
    if not isinstance(read._core, _core.Model):
        raise _core.InvalidArgument("a package cannot be exported again")
    kinds = ("file", "bin", "pointer")
    if weights not in kinds:
        raise _core.InvalidArgument(f"weights is {weights!r}, wanted one of {', '.join(kinds)}")
    adapt = _arrays.adapter([p.name for p in read.inputs], [p.number for p in read.inputs])
    read._core.export(path, isa, kinds.index(weights), threads, _shapes(read, inputs), tuple((ranges or {}).items()), compiler, adapt,
                       None if rules is None else os.fspath(rules), allow)


def load_package(path: str | os.PathLike[str], *, threads: int = 0) -> Program:
    """Loads a package that export() or `sinter compile` wrote; it runs without a compiler, for the sizes that it was made for.

    Raises FormatError when it is damaged, Unsupported when another version of sinter made it, DeviceError when this processor lacks its instructions.
    """
    core = _core.Program(None, threads, package=path)
    return Program(Model(core), core)

"""The interface of onnxruntime over sinter: InferenceSession and what goes with it. docs/from-onnxruntime.md lists what maps, what is ignored, what differs."""
from __future__ import annotations

import enum
import os
import warnings
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence

from . import _arrays, _core
from ._ortvalue import IOBinding, OrtValue
from ._program import Model, NodeArg, Program, compile, load

if TYPE_CHECKING:
    from ._arrays import Array

PROVIDER = "CPUExecutionProvider"


class GraphOptimizationLevel(enum.IntEnum):
    """ORT_DISABLE_ALL: one kernel for each operator. All other levels are one: everything."""
    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Accepted, without a meaning: kernels run one after another, each on all threads."""
    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Accepted, without a meaning."""
    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class SessionOptions:
    """Options of a session. These have a meaning:

    intra_op_num_threads       at most so many threads for each run; 0: one for each processor
    graph_optimization_level   ORT_DISABLE_ALL: one kernel for each operator
    add_session_config_entry   the keys "sinter.cache" (folder of compiled kernels; "": none), "sinter.compiler", "sinter.check", "sinter.interpret"
                               ("1": see sinter.compile)

    Those that only tune or log are kept and ignored. Those whose absence would change what a script gets (custom operators, replaced initialisers,
    writing the optimised model) raise Unsupported.
    """

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.inter_op_num_threads = 0
        self.graph_optimization_level: int = GraphOptimizationLevel.ORT_ENABLE_ALL
        self.execution_mode: int = ExecutionMode.ORT_SEQUENTIAL
        self.execution_order: int = ExecutionOrder.DEFAULT
        self.enable_cpu_mem_arena = True
        self.enable_mem_pattern = True
        self.enable_mem_reuse = True
        self.enable_profiling = False
        self.profile_file_prefix = "onnxruntime_profile_"
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.use_deterministic_compute = False
        self.use_per_session_threads = True
        self._entries: dict[str, str] = {}
        self._providers: list[str] = []

    @property
    def optimized_model_filepath(self) -> str:
        """Always empty: sinter's optimised form is no ONNX model. Setting it raises Unsupported."""
        return ""

    @optimized_model_filepath.setter
    def optimized_model_filepath(self, path: str) -> None:
        if path:
            raise _core.Unsupported("optimized_model_filepath: the optimised form of a model is kernels, which no ONNX file can hold")

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Keeps a pair. Keys that begin with "sinter." have a meaning, others are ignored."""
        known = ("sinter.cache", "sinter.compiler", "sinter.check", "sinter.interpret")
        if key.startswith("sinter.") and key not in known:
            raise _core.InvalidArgument(f"no session option is called '{key}'; there are {', '.join(known)}")
        self._entries[str(key)] = str(value)

    def get_session_config_entry(self, key: str) -> str:
        """The value of a key that was added. Raises InvalidArgument for others."""
        if key not in self._entries:
            raise _core.InvalidArgument(f"no session option '{key}' was added")
        return self._entries[key]

    def add_provider(self, name: str, options: Mapping[str, str] | None = None) -> None:
        """As the argument `providers` of a session."""
        self._providers.append(name)

    def has_providers(self) -> bool:
        """Whether add_provider was called."""
        return bool(self._providers)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Ignored: kernels are made for the sizes that come."""

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Ignored: kernels are made for the sizes that come."""

    def register_custom_ops_library(self, path: str) -> None:
        """Raises Unsupported."""
        raise _core.Unsupported(f"{path}: libraries of custom operators are made for onnxruntime's own interface")

    def add_initializer(self, name: str, value: Any) -> None:
        """Raises Unsupported."""
        raise _core.Unsupported(f"initialiser '{name}' cannot be replaced from outside the model")

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Raises Unsupported."""
        raise _core.Unsupported(f"initialisers {list(names)} cannot be replaced from outside the model")


class RunOptions:
    """Options of a run: `terminate` set to True, from any thread, stops the runs that use it with Cancelled. The others are kept and ignored."""

    def __init__(self) -> None:
        self._flag = _core.Flag()
        self.log_severity_level = -1
        self.log_verbosity_level = 0
        self.logid = ""
        self.only_execute_path_to_fetches = False
        self._entries: dict[str, str] = {}

    @property
    def terminate(self) -> bool:
        """True stops the runs that use these options."""
        return self._flag.value

    @terminate.setter
    def terminate(self, on: bool) -> None:
        self._flag.value = on

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Kept and ignored."""
        self._entries[str(key)] = str(value)

    def get_run_config_entry(self, key: str) -> str:
        """The value of a key that was added. Raises InvalidArgument for others."""
        if key not in self._entries:
            raise _core.InvalidArgument(f"no run option '{key}' was added")
        return self._entries[key]


class ModelMetadata:
    """What a model file says about itself."""

    def __init__(self, model: Model) -> None:
        pairs = model._core.metadata
        said, own = dict(pairs[:9]), dict(pairs[9:])
        self.producer_name = said["producer"]
        self.graph_name = said["graph"]
        self.domain = said["domain"]
        self.description = said["doc"]
        self.graph_description = said["graph_doc"]
        self.version = int(said["model_version"])
        self.custom_metadata_map: dict[str, str] = own


def _check_providers(providers: Sequence[Any] | None) -> None:
    for p in providers or ():
        name = p[0] if isinstance(p, (tuple, list)) else p
        if name != PROVIDER:
            warnings.warn(f"the execution provider {name!r} is not there; {PROVIDER} does it", stacklevel=3)


class InferenceSession:
    """A model that is ready to run; the interface of onnxruntime's class of this name.

    path_or_bytes     the path of an ONNX file, its bytes, an onnx.ModelProto, or a sinter.Model or sinter.Graph
    sess_options      SessionOptions
    providers         names; CPUExecutionProvider is what there is, for others a warning is given
    provider_options, **kwargs   ignored

    Raises FileError, FormatError, Unsupported (which names all operators that have no meaning), NoMemory. Kernels are compiled by the first run of
    each set of sizes that needs its own; they are kept on disk for the next process.
    """

    def __init__(self, path_or_bytes: Any, sess_options: SessionOptions | None = None, providers: Sequence[Any] | None = None,
                 provider_options: Sequence[Any] | None = None, **kwargs: Any) -> None:
        options = sess_options if sess_options is not None else SessionOptions()
        _check_providers(providers if providers else options._providers)
        entry = options._entries
        self._options = options
        self._model = load(path_or_bytes)
        self._program: Program = compile(
            self._model, threads=int(options.intra_op_num_threads), fuse=int(options.graph_optimization_level) != 0,
            check=entry.get("sinter.check", "0") == "1", interpret=entry.get("sinter.interpret", "0") == "1", cache=entry.get("sinter.cache"),
            compiler=entry.get("sinter.compiler"))
        self._core_run = self._program._core.run
        self._adapt = self._program._adapt
        self._inputs = self._program._names
        self._output_index = {o.name: i for i, o in enumerate(self._model.outputs)}
        self._output_names = list(self._output_index)
        self._model_path = os.fspath(path_or_bytes) if isinstance(path_or_bytes, (str, os.PathLike)) else None

    @property
    def program(self) -> Program:
        """The program, for explain() and what else onnxruntime has no words for."""
        return self._program

    def get_inputs(self) -> list[NodeArg]:
        """Inputs, in order; initialisers do not count."""
        return self._model.inputs

    def get_outputs(self) -> list[NodeArg]:
        """Outputs, in order."""
        return self._model.outputs

    def get_overridable_initializers(self) -> list[NodeArg]:
        """None: initialisers are constants."""
        return []

    def get_modelmeta(self) -> ModelMetadata:
        """What the file says about itself."""
        return ModelMetadata(self._model)

    def get_providers(self) -> list[str]:
        """["CPUExecutionProvider"]."""
        return [PROVIDER]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """No options."""
        return {PROVIDER: {}}

    def get_session_options(self) -> SessionOptions:
        """The options that it was made with."""
        return self._options

    def set_providers(self, providers: Sequence[Any] | None = None, provider_options: Sequence[Any] | None = None) -> None:
        """As the argument `providers`."""
        _check_providers(providers)

    def enable_fallback(self) -> None:
        """Nothing to do: there is nothing to fall back from."""

    def disable_fallback(self) -> None:
        """Nothing to do: there is nothing to fall back from."""

    def _feed(self, input_feed: Mapping[str, Any]) -> tuple[Any, ...]:
        try:
            made = tuple([input_feed[n] for n in self._inputs])
        except KeyError:
            missing = [n for n in self._inputs if n not in input_feed]
            raise _core.InvalidArgument(f"inputs {missing} are missing; given are {list(input_feed)}") from None
        if len(made) != len(input_feed):
            wrong = [n for n in input_feed if n not in self._inputs]
            raise _core.InvalidArgument(f"no inputs are called {wrong}; there are {self._inputs}")
        return made

    def _wanted(self, output_names: Sequence[str] | None) -> list[int] | None:
        if not output_names:
            return None
        try:
            return [self._output_index[n] for n in output_names]
        except KeyError as e:
            raise _core.InvalidArgument(f"no output is called {e}; there are {self._output_names}") from None

    def _run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None) -> list[_core.Tensor]:
        wanted = self._wanted(output_names)
        made: list[_core.Tensor] = self._core_run(self._feed(input_feed), None, run_options._flag if run_options is not None else None, self._adapt,
                                                  _arrays.adapt_output)
        return made if wanted is None else [made[i] for i in wanted]

    def run(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None) -> list[Array]:
        """Runs.

        output_names   which outputs, in this order; None or []: all
        input_feed     for each input an array: NumPy of any strides, DLPack, any buffer (none is copied), or what NumPy makes an array of

        Gives NumPy arrays. Raises InvalidArgument for inputs that do not fit (which, what was found, what was wanted) and data that make an index
        leave its axis; CompileError; Cancelled.
        """
        array_of = _arrays.array_of
        return [array_of(t) for t in self._run(output_names, input_feed, run_options)]

    def run_with_ort_values(self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue],
                            run_options: RunOptions | None = None) -> list[OrtValue]:
        """The same with OrtValue in and out."""
        return [OrtValue._of(t) for t in self._run(output_names, input_dict_ort_values, run_options)]

    def run_async(self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], callback: Callable[[list[Any], Any, str], None],
                  user_data: Any, run_options: RunOptions | None = None) -> None:
        """Runs on another thread, then calls callback(results, user_data, message), message "" when all went well."""
        import threading

        def work() -> None:
            try:
                results, message = self.run(output_names, input_feed, run_options), ""
            except Exception as e:
                results, message = [], str(e)
            callback(results, user_data, message)
        threading.Thread(target=work, daemon=True).start()

    def io_binding(self) -> IOBinding:
        """A binding of inputs and outputs to memory, for run_with_iobinding."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Runs with what is bound; outputs bound to memory are written there, the others are in iobinding.get_outputs(). Raises as run."""
        results = self._core_run(self._feed(iobinding._in), iobinding._buffers(self._output_names), run_options._flag if run_options is not None else None,
                                 self._adapt, _arrays.adapt_output)
        iobinding._take(self._output_names, results)

    def end_profiling(self) -> str:
        """"": there is no profile file; program.explain() and `sinter bench` say where the time goes."""
        return ""

    def get_profiling_start_time_ns(self) -> int:
        """0."""
        return 0


def get_available_providers() -> list[str]:
    """["CPUExecutionProvider"]."""
    return [PROVIDER]


def get_all_providers() -> list[str]:
    """["CPUExecutionProvider"]."""
    return [PROVIDER]


def get_device() -> str:
    """"CPU"."""
    return "CPU"


def get_version_string() -> str:
    """sinter's version."""
    return _core.version


def get_build_info() -> str:
    """The name and version of sinter."""
    return f"sinter {_core.version}"


def set_default_logger_severity(severity: int) -> None:
    """Ignored: the library writes no log unless SN_DEBUG asks for one."""


def set_default_logger_verbosity(verbosity: int) -> None:
    """Ignored."""


def set_seed(seed: int) -> None:
    """Ignored: random operators follow their seed attribute, or else their place in the model."""


def disable_telemetry_events() -> None:
    """Nothing to do: there is no telemetry."""


def enable_telemetry_events() -> None:
    """Nothing to do: there is no telemetry."""


def preload_dlls(*args: Any, **kwargs: Any) -> None:
    """Nothing to do."""

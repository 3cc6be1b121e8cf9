"""sinter: compiles tensor graphs into fused kernels and runs them.

    import sinter as onnxruntime                      scripts for onnxruntime run as they are: InferenceSession and what goes with it
    program = sinter.compile("net.onnx")              sinter's own interface
    y = program(x)
    print(program.explain())
    g = sinter.Graph()                                a model by calls

Failures are exceptions of the class sinter.Error; its subclasses are ValueError, OSError, MemoryError and so on as well.
"""
from ._arrays import DeviceArray
from ._core import (Cancelled, CompileError, DeviceError, Error, FileError, FormatError, InvalidArgument, NoMemory, Timeout, Unsupported,
                    version as __version__)
from ._ortvalue import IOBinding, OrtValue
from ._program import Graph, Model, NodeArg, Program, Value, compile, export, load, load_package
from ._session import (ExecutionMode, ExecutionOrder, GraphOptimizationLevel, InferenceSession, ModelMetadata, RunOptions, SessionOptions,
                       disable_telemetry_events, enable_telemetry_events, get_all_providers, get_available_providers, get_build_info, get_device,
                       get_version_string, preload_dlls, set_default_logger_severity, set_default_logger_verbosity, set_seed)

SessionIOBinding = IOBinding

__all__ = [
    "Cancelled", "CompileError", "DeviceArray", "DeviceError", "Error", "ExecutionMode", "ExecutionOrder", "FileError", "FormatError", "Graph", "GraphOptimizationLevel",
    "IOBinding", "InferenceSession", "InvalidArgument", "Model", "ModelMetadata", "NoMemory", "NodeArg", "OrtValue", "Program", "RunOptions",
    "SessionIOBinding", "SessionOptions", "Timeout", "Unsupported", "Value", "__version__", "compile", "disable_telemetry_events",
    "enable_telemetry_events", "export", "get_all_providers", "get_available_providers", "get_build_info", "get_device", "get_version_string", "load",
    "load_package",
    "preload_dlls", "set_default_logger_severity", "set_default_logger_verbosity", "set_seed"]

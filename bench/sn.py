"""The structures of sinter.h, for ctypes, as far as the benches need them. tests/structs.sh compares their sizes with C's."""
import ctypes


class Tensor(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("rank", ctypes.c_int32), ("dims", ctypes.c_int64 * 16), ("strides", ctypes.c_int64 * 16),
                ("has_strides", ctypes.c_int32), ("data", ctypes.c_void_p), ("bytes", ctypes.c_size_t), ("owner", ctypes.c_void_p), ("buffer", ctypes.c_void_p), ("offset", ctypes.c_size_t), ("on_device", ctypes.c_int32)]


class Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("text", ctypes.c_char * 1024)]


class Options(ctypes.Structure):
    _fields_ = [("threads", ctypes.c_int32), ("no_fuse", ctypes.c_int32), ("check", ctypes.c_int32), ("interpret", ctypes.c_int32), ("cache", ctypes.c_char_p),
                ("compiler", ctypes.c_char_p), ("cancel", ctypes.c_void_p), ("device", ctypes.c_char_p), ("background", ctypes.c_int32), ("rules", ctypes.c_char_p), ("allow", ctypes.c_char_p)]

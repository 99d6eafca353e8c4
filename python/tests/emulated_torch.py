"""PyTorch for the CPU as if it computed on an emulated GPU, whose memory nobody may touch but kernels, copies and, between begin and end
of a piece of work on a stream, this library: what the run's code does with PyTorch outside of its stream ends in SIGSEGV."""

import contextlib
import ctypes

import torch

from spillway import _core
from spillway.torch import _place, _skeleton

_library = ctypes.CDLL(_core.__file__)
_library.emulated_cuda_host_work_begin.argtypes = [ctypes.c_void_p]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_from_dlpack = torch.utils.dlpack.from_dlpack
CUDA, CPU = 2, 1  # DLDeviceType


def from_dlpack(tensor):
    """Takes memory of an emulated GPU for memory of the host, which it is."""
    if not hasattr(tensor, "__dlpack_device__") or tensor.__dlpack_device__()[0] != CUDA:
        return _from_dlpack(tensor)
    capsule = tensor.__dlpack__()
    address = _pointer(capsule, b"dltensor") + ctypes.sizeof(ctypes.c_void_p)  # a DLTensor holds the pointer to its data, then the device
    device = ctypes.cast(address, ctypes.POINTER(ctypes.c_int32))
    device[0], device[1] = CPU, 0
    return _from_dlpack(capsule)


class EmulatedPlace(_place.Place):
    queues: set = set()
    limits: dict = {}
    most: dict = {}

    def __init__(self, gpu):
        super().__init__(None)
        self.gpu = gpu

    @contextlib.contextmanager
    def on(self, queue):
        if self.gpu is None:
            yield
            return
        assert queue != 0, "work on the default queue, on which the run does not compute"
        assert _library.emulated_cuda_host_work_begin(queue) == 0
        EmulatedPlace.queues.add((self.gpu, queue))
        try:
            yield
        finally:
            _library.emulated_cuda_host_work_end()

    def limit(self, size):
        EmulatedPlace.limits[self.gpu] = size
        EmulatedPlace.most[self.gpu] = max(size, EmulatedPlace.most.get(self.gpu, 0))

    def unlimited(self):
        return lambda: EmulatedPlace.limits.pop(self.gpu)


def install():
    torch.utils.dlpack.from_dlpack = from_dlpack
    _skeleton.Place = EmulatedPlace

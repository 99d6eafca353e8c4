"""Reads and writes safetensors files by ranges, so that no file is ever in memory as a whole."""

from __future__ import annotations

import json
import math
import os

import torch

TYPE_CHECKING = False  # type checkers take it as True; at run time, not importing typing saves time
if TYPE_CHECKING:
    from typing import Any, Iterator, Mapping

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32,
    "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_PIECE = 8 << 20  # bytes that are copied at a time
_MOST_HEADER = 100 << 20  # bytes, as in the safetensors library


class Stored:
    """A tensor in a file: its type, shape and place. Thread-safe."""

    def __init__(self, file: str, name: str, dtype: torch.dtype, shape: tuple[int, ...], begin: int) -> None:
        self.file, self.name, self.dtype, self.shape, self._begin = file, name, dtype, shape, begin

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    def values(self, begin: int, end: int) -> torch.Tensor:
        """Reads the elements [begin, end) of the flat tensor."""
        from ..errors import DataError, UsageError, _system_errors

        if not 0 <= begin <= end <= self.elements:
            raise UsageError(f"{self.file}: expected a range of elements of {self.name} from 0 to {self.elements}, got {begin} to {end}")
        into = bytearray((end - begin) * self.dtype.itemsize)
        with _system_errors(f"read {self.file}"), open(self.file, "rb", buffering=0) as file:
            file.seek(self._begin + begin * self.dtype.itemsize)
            view, read = memoryview(into), 0
            while read < len(into) and (count := file.readinto(view[read : read + _PIECE])):
                read += count
        if read < len(into):
            raise DataError(f"[weights] {self.file}: expected {len(into)} bytes of {self.name}, got {read}: the file was cut while "
                            "it was read")
        return torch.frombuffer(into, dtype=self.dtype) if into else torch.empty(0, dtype=self.dtype)

    def rows(self, begin: int, end: int) -> torch.Tensor:
        """Reads the rows [begin, end) of the first axis."""
        row = math.prod(self.shape[1:])
        return self.values(begin * row, end * row).reshape(end - begin, *self.shape[1:])

    def whole(self) -> torch.Tensor:
        return self.values(0, self.elements).reshape(self.shape)


class Held:
    """A tensor in memory, in place of one in a file."""

    file = "the module"

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor.detach().cpu().contiguous()
        self.dtype, self.shape = tensor.dtype, tuple(tensor.shape)

    @property
    def elements(self) -> int:
        return self._tensor.numel()

    def values(self, begin: int, end: int) -> torch.Tensor:
        return self._tensor.reshape(-1)[begin:end]

    def rows(self, begin: int, end: int) -> torch.Tensor:
        return self._tensor[begin:end]

    def whole(self) -> torch.Tensor:
        return self._tensor


def stored_in(file: str) -> dict[str, Stored]:
    """Returns the tensors of a safetensors file. Raises DataError for a file that is damaged or cut."""
    from ..errors import DataError, _system_errors

    expected = f"[weights] {file}: expected a safetensors file"
    with _system_errors(f"read {file}"), open(file, "rb") as opened:
        size = os.fstat(opened.fileno()).st_size
        length = int.from_bytes(opened.read(8), "little")
        if size < 8 or not 0 < length <= min(size - 8, _MOST_HEADER):
            raise DataError(f"{expected}, got {size} bytes without its header: the file is cut or of another kind")
        text = opened.read(length)
    try:
        header: dict[str, Any] = json.loads(text)
        header.pop("__metadata__", None)
        tensors, end = {}, 8 + length
        for name, one in header.items():
            begin, stop = one["data_offsets"]
            dtype, shape = _DTYPES[one["dtype"]], tuple(one["shape"])
            if begin < 0 or stop - begin != math.prod(shape) * dtype.itemsize:
                raise ValueError(f"the bytes {begin} to {stop} for {name} of {shape}")
            tensors[name] = Stored(file, name, dtype, shape, 8 + length + begin)
            end = max(end, 8 + length + stop)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{expected}, got a header that cannot be read ({error}): the file is damaged or of another kind") from None
    if size != end:
        raise DataError(f"{expected} of {end} bytes, got {size}: the file is cut or damaged")
    return tensors


class Writer:
    """A new safetensors file whose tensors are written in any order. Not thread-safe."""

    def __init__(self, file: str, tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]) -> None:
        from ..errors import _system_errors

        header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
        self._begins, end = {}, 0
        # Types with larger elements come first, so that each tensor's address is a multiple of its element's size.
        for name, (dtype, shape) in sorted(tensors.items(), key=lambda one: (-one[1][0].itemsize, one[0])):
            self._begins[name], begin = end, end
            end += math.prod(shape) * dtype.itemsize
            header[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._file, self._data = file, 8 + len(text)
        with _system_errors(f"write {file}"):
            self._opened = open(file, "xb", buffering=0)
            try:
                self._put(0, len(text).to_bytes(8, "little") + text)
                os.truncate(self._opened.fileno(), self._data + end)
            except BaseException:
                self._opened.close()
                raise

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: Any, *rest: Any) -> None:
        from ..errors import _system_errors

        with self._opened, _system_errors(f"write {self._file}"):
            if kind is None:
                os.fsync(self._opened.fileno())

    def write(self, name: str, values: torch.Tensor, begin: int = 0) -> None:
        """Writes values as the elements of tensor `name` from `begin` on."""
        from ..errors import _system_errors

        flat = values.contiguous().reshape(-1).view(torch.uint8)
        with _system_errors(f"write {self._file}"):
            self._put(self._data + self._begins[name] + begin * values.dtype.itemsize, memoryview(flat.numpy()))

    def copy(self, name: str, stored: Stored | Held) -> None:
        for begin, end in pieces(stored.elements, stored.dtype.itemsize):
            self.write(name, stored.values(begin, end), begin)

    def _put(self, place: int, data: bytes | memoryview) -> None:
        view, put = memoryview(data), 0
        while put < len(view):
            put += os.pwrite(self._opened.fileno(), view[put : put + _PIECE], place + put)


def pieces(elements: int, size: int) -> Iterator[tuple[int, int]]:
    """Yields ranges of at most 8 MiB that cover [0, elements)."""
    step = max(1, _PIECE // size)
    for begin in range(0, elements, step):
        yield begin, min(begin + step, elements)

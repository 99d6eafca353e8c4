// Tensors from and to other programs' arrays: DLPack and NumPy, without a copy. Whose memory it is lives as long as either side does.
#pragma once
#include <string>

#include "python/module/graph.h"

namespace spillway::python {

/// A view of an array that has DLPack's protocol or the buffer protocol (NumPy, PyTorch, ...): contiguous, writable unless `copy`, of a
/// type that tensors have, in host memory or on a GPU. Python's TypeError or ValueError in the name of `argument` on any other.
Tensor borrow(const nb::object& array, const char* argument);
/// A copy of such an array, of any strides (of a GPU's: contiguous), perhaps read-only; or of nested lists of numbers. In host memory.
Tensor copy_of(const nb::object& array, const char* argument);
/// Where such an array is; lists are in host memory.
Device device_of_array(const nb::object& array);
/// Ids or classes as the library has them, int32: a copy of any whole numbers. In host memory.
Tensor whole_numbers(const nb::object& array, const char* argument);
/// Or a copy of it where the stream in force computes.
Tensor brought_here(const Tensor& t);
/// The elements on another device, or `from` itself where it is there.
Tensor moved(const Tensor& from, Device to);
/// "f32", and what NumPy and PyTorch call it. ValueError on others.
DType dtype_of(const std::string& name);
Shape shape_of(const std::vector<i64>& extents);
/// The elements, rounded, as another type.
Tensor converted(const Tensor& from, DType dtype);

/// Tensor with what is no operation: its memory, shape and gradient; and what makes new ones.
nb::class_<Array> bind_tensor(nb::module_& module);
void bind_creation(nb::module_& module);
/// Operations, as functions and as methods.
void bind_operators(nb::class_<Array>& tensor);
void bind_operations(nb::module_& module, nb::class_<Array>& tensor);
void bind_shaping(nb::module_& module, nb::class_<Array>& tensor);

}  // namespace spillway::python

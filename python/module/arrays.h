// Tensors from and to other programs' arrays: DLPack and NumPy, without a copy. Whose memory it is lives as long as either side does.
#pragma once
#include <string>
#include <vector>

#include "python/module/arguments.h"
#include "python/module/graph.h"

namespace spillway::python {

/// A view of an array that has DLPack's protocol or the buffer protocol (NumPy, PyTorch, ...): contiguous, writable unless `copy`, of a
/// type that tensors have, in host memory or on a GPU. Throws WrongType or WrongValue in the name of `argument` on any other.
Tensor borrow(const nb::object& array, const char* argument);
/// A copy of such an array, of any strides (of a GPU's: contiguous), perhaps read-only, in its own type; or of nested lists of numbers:
/// bool, int64 (of none too) or f64, whichever holds them all. In host memory.
Tensor copy_of(const nb::object& array, const char* argument);
/// Whether it is a list, a tuple or a number, whose numbers have no type that a copy would have to keep.
bool is_untyped(const nb::object& array);
/// Where such an array is; lists are in host memory.
Device device_of_array(const nb::object& array);
/// Copies of the Tensors that it gives, gone over once. Throws WrongType in the name of `argument` where it gives none or others.
std::vector<Array> arrays_in(const nb::object& given, const char* argument);
/// Ids or classes as the library has them, int32: a copy of any whole numbers. In host memory.
Tensor whole_numbers(const nb::object& array, const char* argument);
/// Or a copy of it where the stream in force computes.
Tensor brought_here(const Tensor& t);
/// The elements on another device, or `from` itself where it is there.
Tensor moved(const Tensor& from, Device to);
/// "f32", and what NumPy and PyTorch call it. Throws WrongValue on others.
DType dtype_of(const std::string& name);
/// Throws WrongValue on extents below 0 and on more than 6, Error(refused) on more elements than bytes can be counted for.
Shape shape_of(const std::vector<i64>& extents);
/// What becomes of a number that the other type does not hold: `nearest` rounds it, and cuts off its fraction, as PyTorch does; `whole`
/// refuses that of whole numbers. Neither makes whole numbers of NaN, infinities and what is beyond a type.
enum class Keep { nearest, whole };
/// A copy of the elements as another type, in a turn. Throws WrongValue.
Tensor converted(const Tensor& from, DType dtype, Keep keep = Keep::nearest);

/// Tensor with what is no operation: its memory, shape and gradient; and what makes new ones.
nb::class_<Array> bind_tensor(nb::module_& module);
void bind_creation(nb::module_& module);
/// Operations, as functions and as methods.
void bind_operators(nb::class_<Array>& tensor);
void bind_operations(nb::module_& module, nb::class_<Array>& tensor);
void bind_shaping(nb::module_& module, nb::class_<Array>& tensor);

}  // namespace spillway::python

// Converts tensors to arrays of other libraries (NumPy, PyTorch and others), and such arrays to tensors. A tensor and a DLPack or NumPy
// array share their memory without a copy; that memory lives as long as either of them uses it.
#pragma once
#include <string>
#include <vector>

#include "python/module/arguments.h"
#include "python/module/graph.h"

namespace spillway::python {

/// Returns a view of an array that supports DLPack or the buffer protocol (NumPy, PyTorch, ...).
/// The array must be contiguous and writable, have a dtype that tensors have, and lie in host
/// memory or on a GPU. On any other array, throws a WrongType or WrongValue that names `argument`.
Tensor borrow(const nb::object& array, const char* argument);
/// Copies an array that supports DLPack or the buffer protocol to host memory, keeping its dtype. The array may be read-only and have any
/// strides, but on a GPU it must be contiguous. Nested lists of numbers are copied too, as the narrowest of bool, int64 (also for empty
/// lists) and f64 that holds all of them.
Tensor copy_of(const nb::object& array, const char* argument);
/// Returns a view of an array in host memory that is contiguous, which may be read-only; otherwise a copy, as copy_of() does.
Tensor readable_view(const nb::object& array, const char* argument);
/// Returns true for a list, a tuple or a number, whose elements have no dtype that a copy would have to keep.
bool is_untyped(const nb::object& array);
/// Returns PyTorch's view of the tensor's memory, which it does not keep alive. Must be called under the GIL, where PyTorch is installed.
nb::object torch_view(const Tensor& t);
/// Returns the device of an array. A list counts as being in host memory.
Device device_of_array(const nb::object& array);
/// Returns copies of the Tensors that the iterable `given` yields; iterates over it once. Throws
/// a WrongType that names `argument` if `given` is not iterable or yields something else.
std::vector<Array> arrays_in(const nb::object& given, const char* argument);
/// Copies ids or classes, given as whole numbers of any type, to an int32 tensor in host memory.
Tensor whole_numbers(const nb::object& array, const char* argument);
/// Throws Error(data) if an id is not in [0, rows) or a target that counts is not below `classes`, as kernels on the CPU do. A GPU's
/// kernels cannot: they give NaN. Numbers in a GPU's memory, as in the forward of a block, are not looked at.
void check_ids(const Tensor& ids, i64 rows);
void check_targets(const Tensor& targets, i64 classes, i64 ignored = -1);
/// Returns the values of a tensor, for other programs to read. This is the tensor itself or, in the forward of a block, a copy in host
/// memory that outlives the forward. Must be called under the GIL. Throws Error(usage) in a forward that runs without values.
Tensor readable(const Array& array);
/// Returns `t`, or a copy of it on the device of the current stream if that is a GPU and `t` is in host memory. In a block's forward the
/// copy is on the block's device.
Tensor brought_here(const Tensor& t);
/// Returns a copy of the elements on device `to`, or `from` itself if it is on that device.
Tensor moved(const Tensor& from, Device to);
/// Returns the dtype with this name: "f32", or what NumPy, PyTorch and Python call it. Throws WrongValue on other names.
DType dtype_of(const std::string& name);
/// Makes a Shape. Throws WrongValue on negative extents and on more than 6 axes. Throws
/// Error(refused) on so many elements that the number of their bytes may not fit in 64 bits.
Shape shape_of(const std::vector<i64>& extents);
/// Selects how a conversion treats a number that the new type cannot hold. `nearest` rounds it, or drops its fraction, as PyTorch does;
/// `whole` refuses to round whole numbers and to drop fractions. Neither converts NaN, infinities or values out of range to whole numbers.
enum class Keep { nearest, whole };
/// Returns a copy of the elements as dtype `dtype`. The caller must have the turn, that is, the right to compute (turn.h). Throws
/// WrongValue.
Tensor converted(const Tensor& from, DType dtype, Keep keep = Keep::nearest);
/// Returns the tensor itself if it has this dtype; else a copy of the dtype, recorded if both dtypes are floats.
Array to_type(const Array& self, DType wanted);

/// bind_tensor binds the members of the class Tensor for memory, shape and gradient, but not its operations. bind_methods binds conversions
/// by name, copying and pickling. bind_creation binds the functions that make tensors.
nb::class_<Array> bind_tensor(nb::module_& module);
void bind_methods(nb::module_& module, nb::class_<Array>& tensor);
void bind_creation(nb::module_& module);
/// bind_operators() and the functions after it bind the operations, as functions and as methods.
void bind_operators(nb::module_& module, nb::class_<Array>& tensor);
void bind_in_place(nb::class_<Array>& tensor);
void bind_indexing(nb::module_& module, nb::class_<Array>& tensor);
void bind_reductions(nb::module_& module, nb::class_<Array>& tensor);
void bind_operations(nb::module_& module, nb::class_<Array>& tensor);
void bind_shaping(nb::module_& module, nb::class_<Array>& tensor);

}  // namespace spillway::python

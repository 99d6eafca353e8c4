// Reads arrays of other programs through DLPack, and nested lists of numbers.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/layout/layout.h"
#include "python/module/arrays.h"
#include "tensor/create.h"

namespace spillway::python {
namespace {

using Any = nb::ndarray<nb::ro>;
using Code = nb::dlpack::dtype_code;

// An array of another program, which a tensor's storage keeps alive. The storage
// may be released on any thread, also while that thread has the turn (turn.h).
class Held {
 public:
  Held(Any array, Device device) : array_(new Any(std::move(array))), device_(device) {}
  ~Held() {
    settle(device_, Settle::ours);
    drop_in_python([array = array_] { delete array; });
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  Any* array_;
  const Device device_;
};

// Returns what is asked for through DLPack: the array itself, or, of one on a GPU, its capsule, for which its program makes CUDA's default
// stream, which is ours, follow the work that computes the array ("Python array API standard, __dlpack__: stream"). An array whose program
// knows no streams is asked without one, and all of the GPU's work is waited for.
nb::object ordered(const nb::object& array) {
  const Device device = device_of_array(array);
  if (!device.is_cuda() || nb::isinstance<Array>(array)) return array;
  constexpr int default_stream = 1;
  try {
    return array.attr("__dlpack__")(nb::arg("stream") = default_stream);
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  const Running running(device);  // throws an error if this process cannot use the array's GPU
  wait_for_gpu(device);
  return array;
}

// Imports the array through DLPack, with a single request, because a DLPack capsule can be read only once.
Any import(const nb::object& given, const char* argument) {
  const nb::object array = ordered(given);
  Any found;
  if (nb::try_cast(array, found)) return found;
  throw WrongType(std::string(argument) +
                  ": expected an array with DLPack's protocol (NumPy, PyTorch, ...) or an unused DLPack capsule, got " + kind_of(array));
}

// Imports an array that must be writable. If that fails, imports the array as read-only, to find out whether being read-only is all that is
// wrong.
nb::ndarray<> import_writable(const nb::object& array, const char* argument) {
  nb::ndarray<> found;
  if (nb::try_cast(ordered(array), found)) return found;
  static_cast<void>(import(array, argument));
  throw WrongValue(std::string(argument) + ": expected a writable array, got a read-only one: copy it with spillway.tensor()");
}

DType dtype_in(const Any& array, const char* argument) {
  const nb::dlpack::dtype type = array.dtype();
  const auto is = [&](Code code, int bits) { return type.code == static_cast<u8>(code) && type.bits == bits && type.lanes == 1; };
  if (is(Code::Float, 32)) return DType::f32;
  if (is(Code::Float, 64)) return DType::f64;
  if (is(Code::Float, 16)) return DType::f16;
  if (is(Code::Bfloat, 16)) return DType::bf16;
  if (is(Code::Int, 32)) return DType::int32;
  if (is(Code::Int, 64)) return DType::int64;
  if (is(Code::UInt, 8)) return DType::uint8;
  if (is(Code::Bool, 8)) return DType::boolean;
  const char* kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  throw WrongType(std::string(argument) + ": expected f32, f64, bf16, f16, i32, i64, u8 or bool, got " +
                  (type.code < std::size(kinds) ? kinds[type.code] : "code " + std::to_string(type.code)) + std::to_string(type.bits));
}

Shape shape_in(const Any& array, const char* argument) {
  if (array.ndim() > Shape::kMaxRank)
    throw WrongValue(std::string(argument) + ": expected at most 6 axes, got " + std::to_string(array.ndim()));
  return shape_of({array.shape_ptr(), array.shape_ptr() + array.ndim()});
}

bool is_contiguous(const Any& array) {
  i64 stride = 1;
  for (size_t axis = array.ndim(); axis-- > 0;) {
    if (array.shape(axis) == 0) return true;
    if (array.shape(axis) != 1 && array.stride(axis) != stride) return false;
    stride *= static_cast<i64>(array.shape(axis));
  }
  return true;
}

// Returns the array's device. Host memory that is page-locked for GPUs counts as host memory.
Device device_in(const Any& array, const char* argument) {
  const int type = array.device_type();
  if (type == nb::device::cpu::value || type == nb::device::cuda_host::value) return Device::cpu();
  if (type == nb::device::cuda::value) return Device::cuda(array.device_id());
  throw WrongType(std::string(argument) + ": expected an array in host memory or on an NVIDIA GPU, got one on DLPack device type " +
                  std::to_string(type) + ": copy it to the CPU first");
}

const std::byte* data_of(const Any& array) { return static_cast<const std::byte*>(array.data_handle()) + array.byte_offset(); }

// Copies the elements one by one, in row-major order.
void gather(const Any& array, i64 width, std::byte* to) {
  std::vector<i64> at(array.ndim(), 0);
  const std::byte* from = data_of(array);
  for (i64 left = static_cast<i64>(array.size()); left > 0; --left, to += width) {
    i64 offset = 0;
    for (size_t axis = 0; axis < at.size(); ++axis) offset += at[axis] * array.stride(axis);
    std::memcpy(to, from + offset * width, static_cast<size_t>(width));
    for (size_t axis = at.size(); axis-- > 0;) {
      if (++at[axis] < static_cast<i64>(array.shape(axis))) break;
      at[axis] = 0;
    }
  }
}

// Returns a tensor that views the array's memory.
Tensor view_of(const Any& array, Device device, const char* argument) {
  const DType dtype = dtype_in(array, argument);
  const Shape shape = shape_in(array, argument);
  const auto storage = Storage::vacant(device, shape.elems() * size_of(dtype));
  storage->fill(const_cast<std::byte*>(data_of(array)));
  return Tensor(storage, 0, shape, dtype);
}

// Returns a tensor that views the array's memory and keeps the array alive.
Tensor kept_view(Any array, const char* argument) {
  const Device device = device_in(array, argument);
  const Tensor view = view_of(array, device, argument);
  // One owner keeps both the storage and the array whose memory it uses.
  auto owner = std::make_shared<std::pair<std::shared_ptr<Storage>, Held>>(std::piecewise_construct, std::forward_as_tuple(view.storage()),
                                                                           std::forward_as_tuple(std::move(array), device));
  return Tensor(std::shared_ptr<Storage>(owner, view.storage().get()), 0, view.shape(), view.dtype());
}

bool is_aligned(const Any& array, DType dtype) {
  return reinterpret_cast<uintptr_t>(data_of(array)) % static_cast<uintptr_t>(size_of(dtype)) == 0;
}

Tensor gathered(const Any& array, const char* argument) {
  if (const Device device = device_in(array, argument); device.is_cuda()) {
    if (!is_contiguous(array)) throw WrongValue(std::string(argument) + ": expected a contiguous GPU array, got one with other strides");
    const Tensor there = view_of(array, device, argument);
    const Running running(device, there.bytes() >= kLongBytes);
    wait_for_gpu(device);
    return to_host(there);
  }
  const Shape shape = shape_in(array, argument);
  const DType dtype = dtype_in(array, argument);
  const Running running(Device::cpu(), shape.elems() * size_of(dtype) >= kLongBytes, InForward::on_host);
  const Tensor copy = empty(shape, dtype, "copy of an array");
  if (copy.elems() == 0) return copy;
  if (is_contiguous(array)) {
    std::memcpy(copy.raw(), data_of(array), static_cast<size_t>(copy.bytes()));
  } else {
    gather(array, size_of(copy.dtype()), copy.raw());
  }
  return copy;
}

// Converts ids or classes of any integer type to int32.
template <class T>
void narrow_into(std::span<const std::byte> packed, std::span<i32> to, const char* argument) {
  for (size_t i = 0; i < to.size(); ++i) {
    T value;
    std::memcpy(&value, packed.data() + i * sizeof value, sizeof value);
    if (!std::in_range<i32>(value))
      throw WrongValue(std::string(argument) + ": expected numbers that fit 32 bits, got " + std::to_string(value));
    to[i] = static_cast<i32>(value);
  }
}

void narrow_any(nb::dlpack::dtype type, std::span<const std::byte> packed, std::span<i32> to, const char* argument) {
  const auto is = [&](Code code, int bits) { return type.code == static_cast<u8>(code) && type.bits == bits && type.lanes == 1; };
  if (is(Code::Int, 64)) return narrow_into<i64>(packed, to, argument);
  if (is(Code::Int, 32)) return narrow_into<i32>(packed, to, argument);
  if (is(Code::Int, 16)) return narrow_into<int16_t>(packed, to, argument);
  if (is(Code::Int, 8)) return narrow_into<int8_t>(packed, to, argument);
  if (is(Code::UInt, 64)) return narrow_into<u64>(packed, to, argument);
  if (is(Code::UInt, 32)) return narrow_into<u32>(packed, to, argument);
  if (is(Code::UInt, 16)) return narrow_into<u16>(packed, to, argument);
  if (is(Code::UInt, 8)) return narrow_into<u8>(packed, to, argument);
  throw WrongType(std::string(argument) + ": expected whole numbers, got another type");
}

void check_whole(nb::dlpack::dtype type, const char* argument) {
  const bool whole = type.code == static_cast<u8>(Code::Int) || type.code == static_cast<u8>(Code::UInt);
  const bool packed = type.lanes == 1 && (type.bits == 8 || type.bits == 16 || type.bits == 32 || type.bits == 64);
  if (!whole || !packed) throw WrongType(std::string(argument) + ": expected whole numbers, got another type");
}

// Converts a tensor of the library to int32.
Tensor narrowed(const Tensor& all, const char* argument) {
  if (all.dtype() == DType::int32) return all;
  if (all.dtype() != DType::int64 && all.dtype() != DType::uint8)
    throw WrongType(std::string(argument) + ": expected whole numbers, got " + std::string(to_string(all.dtype())));
  const Running running(Device::cpu(), false, InForward::on_host);
  return converted(all, DType::int32);
}

// Converts whole numbers of any kind to int32. In the forward of a block, the result stays on the block's device.
Tensor numbers_here(const Array& given, const char* argument) {
  const Tensor all = given.value();
  if (all.dtype() == DType::int32) return all;
  if (all.dtype() != DType::int64 && all.dtype() != DType::uint8)
    throw WrongType(std::string(argument) + ": expected whole numbers, got " + std::string(to_string(all.dtype())));
  const Running running(Device::cpu(), false, InForward::on_block);
  return converted(Pass::brought(all), DType::int32);
}

// The numbers found in nested lists, in every type that still holds all of them: always as f64, as int64 while all are whole, and as bool
// while all are bools.
struct Nested {
  std::vector<i64> extents;
  std::vector<i64> whole;
  std::vector<double> all;
  bool bools = true;
};

// Reads one number of a nested list. Must be called under the GIL; the number's own Python code may run and change the lists.
void read_number(const nb::handle& value, Nested& found) {
  const bool is_bool = nb::isinstance<nb::bool_>(value), is_float = PyFloat_Check(value.ptr());
  const bool all_whole = found.whole.size() == found.all.size();
  const Whole whole = is_bool ? Whole::read(nb::int_(value)) : is_float ? Whole() : Whole::read(value);
  found.bools = found.bools && is_bool;
  if (!is_float && whole.is_whole() && all_whole) {
    found.whole.push_back(whole);
    found.all.push_back(static_cast<double>(found.whole.back()));
    return;
  }
  const Real number = Real::read(value);
  if (!number.is_number()) throw WrongType("expected numbers, or nested lists of them, got " + kind_of(value));
  found.all.push_back(number);
}

void flatten(const nb::handle& value, size_t depth, Nested& found) {
  std::vector<i64>& extents = found.extents;
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    if (depth == Shape::kMaxRank)
      throw WrongValue("expected nested lists of at most 6 levels, got more levels (or a list that contains itself)");
    const auto size = static_cast<i64>(nb::len(value));
    if (extents.size() == depth && found.all.empty()) extents.push_back(size);
    if (extents.size() == depth) throw WrongValue("expected nested lists of one depth, got a list among numbers");
    if (extents[depth] != size) throw WrongValue("expected nested lists of one length per level, got lists of different lengths");
    for (const nb::handle one : value) flatten(one, depth + 1, found);
    return;
  }
  if (depth != extents.size()) throw WrongValue("expected nested lists of one depth, got a number among lists");
  read_number(value, found);
}

// Throws WrongValue if a list with fractions also has whole numbers that a double does not hold exactly.
void check_exact(const Nested& found) {
  for (const i64 whole : found.whole) {
    const auto wide = static_cast<double>(whole);
    if (!(wide < 0x1p63) || static_cast<i64>(wide) != whole)
      throw WrongValue("expected whole numbers that a double can hold exactly (such as all up to 2^53) in a list with fractions, got " +
                       std::to_string(whole));
  }
}

Tensor of_lists(const nb::object& lists) {
  Nested found;
  flatten(lists, 0, found);
  const Shape shape = shape_of(found.extents);
  if (shape.elems() != std::ssize(found.all))
    throw WrongValue("expected nested lists that stay unchanged while they are read, got lists that changed");
  const bool whole = found.whole.size() == found.all.size();
  if (!whole) check_exact(found);
  const Running running(Device::cpu(), std::ssize(found.all) * 8 >= kLongBytes, InForward::on_host);
  if (!whole) return tensor_of(std::span<const double>(found.all), shape);
  const Tensor numbers = tensor_of(std::span<const i64>(found.whole), shape);
  return found.bools && !found.all.empty() ? converted(numbers, DType::boolean) : numbers;
}

}  // namespace

Tensor borrow(const nb::object& array, const char* argument) {
  if (nb::isinstance<Array>(array)) return readable(nb::cast<const Array&>(array));
  if (nb::hasattr(array, "requires_grad") && array.attr("requires_grad").is(nb::bool_(true))) {
    throw WrongType(std::string(argument) +
                    ": expected an array without requires_grad, because its gradient would be lost here: detach() it first");
  }
  const nb::ndarray<> writable = import_writable(array, argument);
  Any found(writable);
  const Device device = device_in(found, argument);
  const DType dtype = dtype_in(found, argument);
  if (!is_contiguous(found))
    throw WrongValue(std::string(argument) +
                     ": expected a contiguous array, got one with other strides: make it contiguous, or copy it with spillway.tensor()");
  if (!is_aligned(found, dtype))
    throw WrongValue(
        std::string(argument) +
        ": expected elements at addresses that are multiples of their size, got a misaligned array: copy it with spillway.tensor()");
  if (device.is_cuda()) {
    const Running running(device);                                       // throws an error if this process cannot use the array's GPU
    if (!nb::hasattr(array, "__dlpack_device__")) wait_for_gpu(device);  // a capsule, made for a stream that is not known here
  }
  return kept_view(std::move(found), argument);
}

Device device_of_array(const nb::object& array) {
  if (nb::isinstance<Array>(array)) return nb::cast<const Array&>(array).value().device();
  if (!nb::hasattr(array, "__dlpack_device__")) return Device::cpu();
  const nb::object device = array.attr("__dlpack_device__")();
  if (!nb::isinstance<nb::tuple>(device) || nb::len(device) != 2)
    throw WrongType("__dlpack_device__: expected a pair of numbers, got something else");
  const int kind = Whole::read(nb::int_(device[0])).small(), index = Whole::read(nb::int_(device[1])).small();
  return kind == nb::device::cuda::value ? Device::cuda(index) : Device::cpu();
}

bool is_untyped(const nb::object& array) {
  return nb::isinstance<nb::list>(array) || nb::isinstance<nb::tuple>(array) || nb::isinstance<nb::float_>(array) ||
         nb::isinstance<nb::int_>(array);
}

std::vector<Array> arrays_in(const nb::object& given, const char* argument) {
  const std::string otherwise = std::string(argument) + ": expected Tensors in a list, got " + kind_of(given);
  if (nb::isinstance<Array>(given)) throw WrongType(otherwise);
  std::vector<Array> arrays;
  for (const nb::handle one : iterator_of(given, otherwise)) {
    if (!nb::isinstance<Array>(one)) throw WrongType(std::string(argument) + ": expected Tensors, got an element of type " + kind_of(one));
    arrays.push_back(static_cast<const Array&>(Given::read(one)));
  }
  return arrays;
}

Tensor copy_of(const nb::object& array, const char* argument) {
  if (nb::isinstance<Array>(array)) {
    const Tensor from = readable(nb::cast<const Array&>(array));
    if (from.device().is_cuda()) return moved(from, Device::cpu());
    const Running running(Device::cpu(), from.bytes() >= kLongBytes, InForward::on_host);
    return converted(from, from.dtype());
  }
  if (is_untyped(array)) return of_lists(array);
  return gathered(import(array, argument), argument);
}

Tensor readable_view(const nb::object& array, const char* argument) {
  if (nb::isinstance<Array>(array) || is_untyped(array)) return copy_of(array, argument);
  Any found = import(array, argument);
  const bool viewed = device_in(found, argument) == Device::cpu() && is_contiguous(found) && is_aligned(found, dtype_in(found, argument));
  return viewed ? kept_view(std::move(found), argument) : gathered(found, argument);
}

Tensor whole_numbers(const nb::object& array, const char* argument) {
  if (Pass::current() != nullptr && nb::isinstance<Array>(array)) return numbers_here(nb::cast<const Array&>(array), argument);
  const bool ours = nb::isinstance<Array>(array) || is_untyped(array);
  if (ours) return narrowed(copy_of(array, argument), argument);
  const Any found = import(array, argument);
  if (device_in(found, argument).is_cuda()) return narrowed(gathered(found, argument), argument);
  const Shape shape = shape_in(found, argument);
  const i64 width = (found.dtype().bits + 7) / 8;
  check_whole(found.dtype(), argument);
  const Running running(Device::cpu(), shape.elems() * width >= kLongBytes, InForward::on_host);
  const Tensor to = empty(shape, DType::int32, "whole numbers");
  if (to.elems() == 0) return to;
  std::vector<std::byte> packed(static_cast<size_t>(to.elems() * width));
  gather(found, width, packed.data());
  narrow_any(found.dtype(), packed, to.span<i32>(), argument);
  return to;
}

void check_ids(const Tensor& ids, i64 rows) {
  if (ids.device() != Device::cpu() || !ids.is_contiguous()) return;
  const auto all = ids.span<i32>();
  const auto wrong = std::ranges::find_if(all, [rows](i32 id) { return id < 0 || id >= rows; });
  if (wrong == all.end()) return;
  throw Error(ErrorCode::data, "[embedding] id " + std::to_string(*wrong) + " at position " + std::to_string(wrong - all.begin()) +
                                   " (positions are counted from 0) is outside the table of " + std::to_string(rows) +
                                   " rows: check that the tokenizer belongs to the model");
}

void check_targets(const Tensor& targets, i64 classes, i64 ignored) {
  if (targets.device() != Device::cpu() || !targets.is_contiguous()) return;
  const auto all = targets.span<i32>();
  const auto wrong = std::ranges::find_if(all, [=](i32 target) { return target >= classes && target != ignored; });
  if (wrong == all.end()) return;
  throw Error(ErrorCode::data, "[cross_entropy] target " + std::to_string(*wrong) + " of row " + std::to_string(wrong - all.begin()) +
                                   " (rows are counted from 0) is not below the number of classes, " + std::to_string(classes) +
                                   ": check that the tokenizer belongs to the model");
}

}  // namespace spillway::python

// DLPack in.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/layout.h"
#include "python/module/arrays.h"
#include "tensor/create.h"

namespace spillway::python {
namespace {

using Any = nb::ndarray<nb::ro>;
using Code = nb::dlpack::dtype_code;

// Held by a storage, which may be let go of on any thread; without an interpreter there is nothing to give back.
class Held {
 public:
  Held(Any array, Device device) : array_(new Any(std::move(array))), device_(device) {}
  ~Held() {
    if (!nb::is_alive()) return;
    settle(device_);
    const nb::gil_scoped_acquire locked;
    delete array_;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  Any* array_;
  const Device device_;
};

std::string type_name(const nb::object& array) { return nb::cast<std::string>(nb::str(nb::type_name(array.type()))); }

Any import(const nb::object& array, const char* argument) {
  Any found;
  if (nb::try_cast(array, found)) return found;
  throw nb::type_error(
      (std::string(argument) + ": expected an array with DLPack's protocol (NumPy, PyTorch, ...), got " + type_name(array)).c_str());
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
  throw nb::type_error((std::string(argument) + ": expected f32, f64, bf16, f16, i32, i64, u8 or bool, got " +
                        (type.code < std::size(kinds) ? kinds[type.code] : "code " + std::to_string(type.code)) + std::to_string(type.bits))
                           .c_str());
}

Shape shape_in(const Any& array, const char* argument) {
  if (array.ndim() > Shape::kMaxRank)
    throw nb::value_error((std::string(argument) + ": expected at most 6 axes, got " + std::to_string(array.ndim())).c_str());
  std::vector<i64> extents(array.shape_ptr(), array.shape_ptr() + array.ndim());
  return Shape(extents);
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

// Memory that is page-locked for GPUs is host memory.
Device device_in(const Any& array, const char* argument) {
  const int type = array.device_type();
  if (type == nb::device::cpu::value || type == nb::device::cuda_host::value) return Device::cpu();
  if (type == nb::device::cuda::value) return Device::cuda(array.device_id());
  throw nb::type_error((std::string(argument) + ": expected an array in host memory or on an NVIDIA GPU, got one on DLPack's device " +
                        std::to_string(type) + ": bring it to the CPU first")
                           .c_str());
}

const std::byte* data_of(const Any& array) { return static_cast<const std::byte*>(array.data_handle()) + array.byte_offset(); }

// Element by element, in row-major order.
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

// Of what is the array's.
Tensor view_of(const Any& array, Device device, const char* argument) {
  const DType dtype = dtype_in(array, argument);
  const Shape shape = shape_in(array, argument);
  const auto storage = Storage::vacant(device, shape.elems() * size_of(dtype));
  storage->fill(const_cast<std::byte*>(data_of(array)));
  return Tensor(storage, 0, shape, dtype);
}

Tensor gathered(const Any& array, const char* argument) {
  if (const Device device = device_in(array, argument); device.is_cuda()) {
    if (!is_contiguous(array))
      throw nb::value_error((std::string(argument) + ": expected a contiguous array of a GPU, got one with other strides").c_str());
    const Tensor there = view_of(array, device, argument);
    const Running running(device);
    const Unlocked unlocked(there.bytes() >= kLongBytes);
    wait_for_gpu(device);
    return to_host(there);
  }
  const Running running;
  const Tensor copy = empty(shape_in(array, argument), dtype_in(array, argument), "copy of an array");
  if (copy.elems() == 0) return copy;
  const Unlocked unlocked(copy.bytes() >= kLongBytes);
  if (is_contiguous(array)) {
    std::memcpy(copy.raw(), data_of(array), static_cast<size_t>(copy.bytes()));
  } else {
    gather(array, size_of(copy.dtype()), copy.raw());
  }
  return copy;
}

// Ids and classes of any integer type.
template <class T>
void narrow_into(std::span<const std::byte> packed, std::span<i32> to, const char* argument) {
  for (size_t i = 0; i < to.size(); ++i) {
    T value;
    std::memcpy(&value, packed.data() + i * sizeof value, sizeof value);
    if (!std::in_range<i32>(value))
      throw nb::value_error((std::string(argument) + ": expected numbers that fit 32 bits, got " + std::to_string(value)).c_str());
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
  throw nb::type_error((std::string(argument) + ": expected whole numbers, got another type").c_str());
}

// Of tensors' own types.
Tensor narrowed(const Tensor& all, const char* argument) {
  if (all.dtype() == DType::int32) return all;
  if (all.dtype() != DType::int64 && all.dtype() != DType::uint8)
    throw nb::type_error((std::string(argument) + ": expected whole numbers, got " + std::string(to_string(all.dtype()))).c_str());
  const Running running;
  return converted(all, DType::int32);
}

struct Nested {
  std::vector<i64> extents, whole;  // `whole`: as long as all are
  std::vector<double> all;
};

void flatten(const nb::handle& value, size_t depth, Nested& found) {
  std::vector<i64>& extents = found.extents;
  if (nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value)) {
    const auto size = static_cast<i64>(nb::len(value));
    if (extents.size() == depth) extents.push_back(size);
    if (extents[depth] != size) throw nb::value_error("expected nested lists of one length each, got some of others");
    for (const nb::handle one : value) flatten(one, depth + 1, found);
    return;
  }
  if (depth != extents.size()) throw nb::value_error("expected nested lists of one depth, got a number among lists");
  double number = 0;
  if (!nb::try_cast(value, number)) throw nb::type_error("expected numbers, or nested lists of them");
  if (found.whole.size() == found.all.size() && nb::isinstance<nb::int_>(value)) found.whole.push_back(nb::cast<i64>(value));
  found.all.push_back(number);
}

Tensor of_lists(const nb::object& lists) {
  Nested found;
  flatten(lists, 0, found);
  const Running running;
  if (found.whole.size() == found.all.size()) return tensor_of(std::span<const i64>(found.whole), Shape(found.extents));
  std::vector<float> rounded(found.all.begin(), found.all.end());
  return tensor_of(std::span<const float>(rounded), Shape(found.extents));
}

}  // namespace

Tensor borrow(const nb::object& array, const char* argument) {
  if (nb::isinstance<Array>(array)) return nb::cast<const Array&>(array).value();
  if (nb::hasattr(array, "requires_grad") && array.attr("requires_grad").is(nb::bool_(true))) {
    throw nb::type_error(
        (std::string(argument) + ": expected an array without a history, got one whose gradient would be lost here: detach() it first")
            .c_str());
  }
  Any found = import(array, argument);
  const Device device = device_in(found, argument);
  const DType dtype = dtype_in(found, argument);
  if (nb::ndarray<> writable; !nb::try_cast(array, writable))
    throw nb::value_error(
        (std::string(argument) + ": expected an array that may be written to, got a read-only one: copy it (spillway.tensor does)")
            .c_str());
  if (!is_contiguous(found))
    throw nb::value_error(
        (std::string(argument) +
         ": expected a contiguous array, got one with other strides: make it contiguous, or copy it (spillway.tensor does)")
            .c_str());
  if (reinterpret_cast<uintptr_t>(data_of(found)) % static_cast<uintptr_t>(size_of(dtype)) != 0)
    throw nb::value_error(
        (std::string(argument) + ": expected elements at multiples of their size, got others: copy it (spillway.tensor does)").c_str());
  if (device.is_cuda()) {
    const Running running(device);  // there is such a GPU for us too
    wait_for_gpu(device);           // whatever queue it was made on
  }
  const Tensor view = view_of(found, device, argument);
  // The storage with whose memory it is.
  auto owner = std::make_shared<std::pair<std::shared_ptr<Storage>, Held>>(std::piecewise_construct, std::forward_as_tuple(view.storage()),
                                                                           std::forward_as_tuple(std::move(found), device));
  return Tensor(std::shared_ptr<Storage>(owner, view.storage().get()), 0, view.shape(), dtype);
}

Device device_of_array(const nb::object& array) {
  if (nb::isinstance<Array>(array)) return nb::cast<const Array&>(array).value().device();
  if (!nb::hasattr(array, "__dlpack_device__")) return Device::cpu();
  const nb::object device = array.attr("__dlpack_device__")();
  return nb::cast<int>(nb::int_(device[0])) == nb::device::cuda::value ? Device::cuda(nb::cast<int>(nb::int_(device[1]))) : Device::cpu();
}

Tensor copy_of(const nb::object& array, const char* argument) {
  if (nb::isinstance<Array>(array)) {
    const Tensor& from = nb::cast<const Array&>(array).value();
    if (from.device().is_cuda()) return moved(from, Device::cpu());
    const Running running;
    return converted(from, from.dtype());
  }
  if (nb::isinstance<nb::list>(array) || nb::isinstance<nb::tuple>(array) || nb::isinstance<nb::float_>(array) ||
      nb::isinstance<nb::int_>(array))
    return of_lists(array);
  return gathered(import(array, argument), argument);
}

Tensor whole_numbers(const nb::object& array, const char* argument) {
  const bool ours = nb::isinstance<Array>(array) || nb::isinstance<nb::list>(array) || nb::isinstance<nb::tuple>(array);
  if (ours) return narrowed(copy_of(array, argument), argument);
  const Any found = import(array, argument);
  if (device_in(found, argument).is_cuda()) return narrowed(gathered(found, argument), argument);
  const Running running;
  const Tensor to = empty(shape_in(found, argument), DType::int32, "whole numbers");
  if (to.elems() == 0) return to;
  const i64 width = (found.dtype().bits + 7) / 8;
  std::vector<std::byte> packed(static_cast<size_t>(to.elems() * width));
  gather(found, width, packed.data());
  narrow_any(found.dtype(), packed, to.span<i32>(), argument);
  return to;
}

}  // namespace spillway::python

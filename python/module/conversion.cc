// Converts the elements of a tensor to another dtype, and copies them to another device.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "device/memory_pool.h"
#include "device/transfer.h"
#include "kernels/accumulate.h"
#include "kernels/layout/layout.h"
#include "python/module/arrays.h"

namespace spillway::python {
namespace {

// Returns a contiguous copy, or `t` itself if it is contiguous.
Tensor contiguous(const Tensor& t) {
  if (t.is_contiguous()) return t;
  const Tensor to = empty(t.shape(), t.dtype(), "copy");
  kernels::copy_view(t, to);
  return to;
}

// Converts a tensor on its own GPU. If the GPU has no kernel for the conversion, the tensor is copied to the host and converted there.
Tensor converted_there(const Tensor& from, DType dtype, Keep keep) {
  const Tensor same = contiguous(from);
  const Tensor to = empty(from.shape(), dtype, "copy");
  if (from.elems() == 0) return to;
  if (from.dtype() == dtype || (from.dtype() == DType::bf16 && dtype == DType::f32)) return kernels::copy(same, to), to;
  if (from.dtype() == DType::f32 && (dtype == DType::bf16 || dtype == DType::f16)) return kernels::rounded_copy(same, to), to;
  const Tensor here = to_host(same);
  const Stream host{Device::cpu(), Stream::current().threads, &MemoryPool::heap()};
  const auto rounded = [&] {
    const StreamScope scope(host);
    return converted(here, dtype, keep);
  }();
  transfer(to.raw(), rounded.raw(), to.bytes());
  return to;
}

// Converts one number to another type. Throws WrongValue if a whole-number type cannot hold it. Unless
// `keep` is Keep::nearest, also throws if a whole number would be rounded or a fraction dropped.
template <class From, class To>
To number_as(From from, Keep keep) {
  const auto refused = [&](const char* what) {
    throw WrongValue(std::string("to: expected numbers that ") + std::string(to_string(DTypeOf<To>::value)) + " can hold, got " +
                     std::to_string(widen(from)) + ", " + what);
  };
  if constexpr (std::is_same_v<From, bool> || std::is_same_v<To, bool>) {
    return static_cast<To>(widen(from) != 0 ? narrow<To>(1) : narrow<To>(0));
  } else if constexpr (std::is_integral_v<From> && std::is_integral_v<To>) {
    if (!std::in_range<To>(from)) refused("which is out of its range");
    return static_cast<To>(from);
  } else if constexpr (std::is_integral_v<To>) {
    const double wide = widen(from), whole = std::trunc(wide);
    const bool fits = whole >= static_cast<double>(std::numeric_limits<To>::min()) && whole < 0x1p63 &&
                      whole <= static_cast<double>(std::numeric_limits<To>::max());
    if (!fits) refused("which is out of its range");
    if (keep == Keep::whole && whole != wide) refused("which is not a whole number: to() truncates it");
    return static_cast<To>(whole);
  } else if constexpr (std::is_integral_v<From>) {
    const To to = narrow<To>(static_cast<Wide<To>>(from));
    const double back = widen(to);
    if (keep == Keep::whole && !(back < 0x1p63 && static_cast<i64>(back) == static_cast<i64>(from)))
      refused("which would be rounded: to() rounds it");
    return to;
  } else {
    return narrow<To>(static_cast<Wide<To>>(widen(from)));
  }
}

// Converts all elements of `from`. Bools are read as bytes, because another program's bools may have any nonzero value.
template <class From, class To>
void convert(const Tensor& from, const Tensor& to, Keep keep) {
  using Read = std::conditional_t<std::is_same_v<From, bool>, u8, From>;
  const auto* const source = reinterpret_cast<const Read*>(from.raw());
  const auto target = to.span<To>();
  for (size_t i = 0; i < target.size(); ++i) {
    if constexpr (std::is_same_v<From, bool>) {
      target[i] = number_as<From, To>(source[i] != 0, keep);
    } else {
      target[i] = number_as<From, To>(source[i], keep);
    }
  }
}

// Calls call(T()), where T is the C++ type of the dtype's elements.
template <class Call>
void with_type(DType dtype, const Call& call) {
  switch (dtype) {
    case DType::f32:
      return call(float());
    case DType::f64:
      return call(double());
    case DType::bf16:
      return call(BFloat16());
    case DType::f16:
      return call(Float16());
    case DType::int32:
      return call(i32());
    case DType::int64:
      return call(i64());
    case DType::uint8:
      return call(u8());
    case DType::boolean:
      return call(bool());
  }
}

}  // namespace

Tensor brought_here(const Tensor& t) {
  if (Pass::current() != nullptr) return Pass::brought(t);
  return Stream::current().device.is_cuda() && !t.device().is_cuda() ? to_current_device(t) : t;
}

Tensor moved(const Tensor& from, Device to) {
  if (from.device() == to) return from;
  const bool long_enough = from.bytes() >= kLongBytes;
  Tensor host = from;
  if (from.device().is_cuda()) {
    const Running there(from.device(), long_enough);
    host = to_host(contiguous(from));
  } else if (!from.is_contiguous()) {
    const Running here(Device::cpu(), long_enough, InForward::on_host);
    host = contiguous(from);
  }
  if (!to.is_cuda()) return host;
  const Running there(to, long_enough);
  return to_current_device(host, "tensor");
}

Tensor converted(const Tensor& from, DType dtype, Keep keep) {
  if (from.device().is_cuda()) return converted_there(from, dtype, keep);
  const Tensor to = empty(from.shape(), dtype, "copy");
  if (from.elems() == 0 || from.device().is_meta()) return to;
  const Tensor same = contiguous(from);
  if (from.dtype() == dtype) {
    std::memcpy(to.raw(), same.raw(), static_cast<size_t>(to.bytes()));
    return to;
  }
  with_type(from.dtype(), [&]<class From>(From) { with_type(dtype, [&]<class To>(To) { convert<From, To>(same, to, keep); }); });
  return to;
}

}  // namespace spillway::python

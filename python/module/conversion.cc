// The elements of a tensor as another type, and on another device.
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "device/memory_pool.h"
#include "device/transfer.h"
#include "kernels/accumulate.h"
#include "kernels/layout.h"
#include "python/module/arrays.h"
#include "tensor/create.h"

namespace spillway::python {
namespace {

// A copy, or itself.
Tensor contiguous(const Tensor& t) {
  if (t.is_contiguous()) return t;
  const Tensor to = empty(t.shape(), t.dtype(), "copy");
  kernels::copy_view(t, to);
  return to;
}

// A GPU's, which computes what it has kernels for; the rest is done here.
Tensor converted_there(const Tensor& from, DType dtype) {
  const Tensor same = contiguous(from);
  const Tensor to = empty(from.shape(), dtype, "copy");
  if (from.elems() == 0) return to;
  if (from.dtype() == dtype || (from.dtype() == DType::bf16 && dtype == DType::f32)) return kernels::copy(same, to), to;
  if (from.dtype() == DType::f32 && (dtype == DType::bf16 || dtype == DType::f16)) return kernels::rounded_copy(same, to), to;
  const Tensor here = to_host(same);
  const Stream host{Device::cpu(), Stream::current().threads, &MemoryPool::heap()};
  const auto rounded = [&] {
    const StreamScope scope(host);
    return converted(here, dtype);
  }();
  transfer(to.raw(), rounded.raw(), to.bytes());
  return to;
}

template <class T>
void store(std::span<T> to, const std::vector<double>& from) {
  for (size_t i = 0; i < from.size(); ++i) {
    if constexpr (kIsHalf<T>) {
      to[i] = narrow<T>(static_cast<float>(from[i]));
    } else if constexpr (std::is_same_v<T, bool>) {
      to[i] = from[i] != 0;
    } else {
      if constexpr (std::is_integral_v<T>) {
        if (!(from[i] >= static_cast<double>(std::numeric_limits<T>::min()) &&
              from[i] <= static_cast<double>(std::numeric_limits<T>::max())))
          throw nb::value_error(("to: expected numbers that fit the type, got " + std::to_string(from[i])).c_str());
      }
      to[i] = static_cast<T>(from[i]);
    }
  }
}

}  // namespace

Tensor brought_here(const Tensor& t) { return Stream::current().device.is_cuda() && !t.device().is_cuda() ? to_current_device(t) : t; }

Tensor moved(const Tensor& from, Device to) {
  if (from.device() == to) return from;
  Tensor host = from;
  if (from.device().is_cuda()) {
    const Running there(from.device());
    const Unlocked unlocked(from.bytes() >= kLongBytes);
    host = to_host(contiguous(from));
  } else if (!from.is_contiguous()) {
    const Running here;
    host = converted(from, from.dtype());
  }
  if (!to.is_cuda()) return host;
  const Running there(to);
  const Unlocked unlocked(from.bytes() >= kLongBytes);
  return to_current_device(host, "tensor");
}

Tensor converted(const Tensor& from, DType dtype) {
  if (from.device().is_cuda()) return converted_there(from, dtype);
  const Tensor to = empty(from.shape(), dtype, "copy");
  if (from.elems() == 0) return to;
  if (from.dtype() == dtype && from.is_contiguous()) {
    std::memcpy(to.raw(), from.raw(), static_cast<size_t>(to.bytes()));
    return to;
  }
  if (dtype == DType::int64 && from.dtype() == DType::int64) throw Error(ErrorCode::usage, "[to] expected a contiguous tensor of int64");
  const std::vector<double> values = values_of(from);
  switch (dtype) {
    case DType::f32:
      return store(to.span<float>(), values), to;
    case DType::f64:
      return store(to.span<double>(), values), to;
    case DType::bf16:
      return store(to.span<BFloat16>(), values), to;
    case DType::f16:
      return store(to.span<Float16>(), values), to;
    case DType::int32:
      return store(to.span<i32>(), values), to;
    case DType::int64:
      return store(to.span<i64>(), values), to;
    case DType::uint8:
      return store(to.span<u8>(), values), to;
    case DType::boolean:
      return store(to.span<bool>(), values), to;
  }
  return to;
}

}  // namespace spillway::python

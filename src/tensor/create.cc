#include "tensor/create.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include "base/error.h"
#include "device/memory_pool.h"
#include "device/transfer.h"

namespace spillway {
namespace {

template <class T>
T number_as(const char* op, double value) {
  if constexpr (std::is_floating_point_v<T> || kIsHalf<T>) {
    return narrow<T>(static_cast<Wide<T>>(value));
  } else {
    // The largest int64 is not representable as a double, so a separate test compares the value with 2^63.
    const bool fits = std::trunc(value) == value && value >= static_cast<double>(std::numeric_limits<T>::lowest()) &&
                      (value < 0x1p63 && value <= static_cast<double>(std::numeric_limits<T>::max()));
    if (!fits) {
      throw Error(ErrorCode::usage, std::string("[") + op + "] expected whole numbers in the range of " +
                                        std::string(to_string(DTypeOf<T>::value)) + ", got " + std::to_string(value) +
                                        ": use another dtype");
    }
    return static_cast<T>(value);
  }
}

template <class T>
Tensor made_as(const char* op, const Shape& shape, const std::function<double(i64)>& value) {
  const Tensor t = empty(shape, DTypeOf<T>::value);
  if (t.device().is_meta()) return t;
  const Allocation memory = MemoryPool::heap().allocate(t.bytes(), "values of a new tensor");
  T* const values = reinterpret_cast<T*>(memory.data());
  for (i64 i = 0; i < t.elems(); ++i) values[i] = number_as<T>(op, value(i));
  if (t.bytes() > 0) transfer(t.raw(), memory.data(), t.bytes());
  return t;
}

Tensor made(const char* op, const Shape& shape, DType dtype, const std::function<double(i64)>& value) {
  switch (dtype) {
    case DType::f32:
      return made_as<float>(op, shape, value);
    case DType::f64:
      return made_as<double>(op, shape, value);
    case DType::bf16:
      return made_as<BFloat16>(op, shape, value);
    case DType::f16:
      return made_as<Float16>(op, shape, value);
    case DType::int32:
      return made_as<i32>(op, shape, value);
    case DType::int64:
      return made_as<i64>(op, shape, value);
    case DType::uint8:
      return made_as<u8>(op, shape, value);
    case DType::boolean:
      return made_as<bool>(op, shape, value);
  }
  throw Error(ErrorCode::bug, "[tensor] expected one of the element types of DType");
}

// Appends the elements of view `t` in row-major order, the last axis innermost.
void append(const Tensor& t, const std::byte* at, int axis, std::vector<double>& values) {
  if (axis == t.rank()) return values.push_back(load_wide(at, t.dtype()));
  for (i64 i = 0; i < t.size(axis); ++i) append(t, at + i * t.stride(axis) * size_of(t.dtype()), axis + 1, values);
}

}  // namespace

double load_wide(const std::byte* at, DType dtype) {
  const auto as = [at]<class T>(T value) {
    std::memcpy(&value, at, sizeof value);
    return static_cast<double>(widen(value));
  };
  switch (dtype) {
    case DType::f32:
      return as(float());
    case DType::f64:
      return as(double());
    case DType::int32:
      return as(i32());
    case DType::int64:
      return as(i64());
    case DType::uint8:
    case DType::boolean:
      return as(u8());
    case DType::bf16:
      return as(BFloat16());
    case DType::f16:
      return as(Float16());
  }
  throw Error(ErrorCode::bug, "[tensor] expected a number of one of the element types of DType");
}

Tensor full(const Shape& shape, double value, DType dtype) {
  return made("full", shape, dtype, [=](i64) { return value; });
}

Tensor ones(const Shape& shape, DType dtype) { return full(shape, 1, dtype); }

Tensor tensor_of(std::initializer_list<double> values, const Shape& shape, DType dtype) {
  if (static_cast<i64>(values.size()) != shape.elems()) {
    throw Error(ErrorCode::usage, "[tensor_of] expected " + std::to_string(shape.elems()) + " values for the shape " + to_string(shape) +
                                      ", got " + std::to_string(values.size()));
  }
  return made("tensor_of", shape, dtype, [&](i64 i) { return values.begin()[i]; });
}

Tensor arange(double begin, double end, double step, DType dtype) {
  const double count = std::ceil((end - begin) / step);
  if (!(std::abs(count) < 0x1p53)) {
    throw Error(ErrorCode::usage, "[arange] expected finite bounds and a step other than 0, got " + std::to_string(begin) + ", " +
                                      std::to_string(end) + " and " + std::to_string(step));
  }
  return made("arange", {std::max<i64>(0, static_cast<i64>(count))}, dtype, [=](i64 i) { return begin + static_cast<double>(i) * step; });
}

Tensor randn(const Shape& shape, RandomKey key, DType dtype) {
  return made("randn", shape, dtype, [=](i64 i) { return normal(key, 0, static_cast<u64>(i)); });
}

Tensor uniform(const Shape& shape, RandomKey key, double lowest, double highest, DType dtype) {
  return made("uniform", shape, dtype, [=](i64 i) { return lowest + (highest - lowest) * uniform(key, 0, static_cast<u64>(i)); });
}

std::vector<double> values_of(const Tensor& t) {
  std::vector<double> values;
  if (t.device().is_meta() || t.elems() == 0) return values;
  values.reserve(static_cast<size_t>(t.elems()));
  if (!t.device().is_cuda()) return append(t, t.raw(), 0, values), values;
  const Storage& storage = *t.storage();
  const Tensor all = to_host(Tensor(t.storage(), 0, {storage.bytes()}, DType::uint8));
  append(t, all.raw() + (t.raw() - storage.data()), 0, values);
  return values;
}

}  // namespace spillway

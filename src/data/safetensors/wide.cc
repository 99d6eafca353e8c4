#include "data/safetensors/wide.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace spillway::data {
namespace {

// Calls `each` with a value of the C++ type that corresponds to `dtype`. `each` uses only the type of this argument.
template <class Each>
void as_type(DType dtype, const Each& each) {
  switch (dtype) {
    case DType::f32:
      return each(float());
    case DType::f64:
      return each(double());
    case DType::bf16:
      return each(BFloat16());
    case DType::f16:
      return each(Float16());
    default:
      require(false, "[weights] expected a floating-point type");
  }
}

}  // namespace

void widen_stored(std::span<const std::byte> stored, DType dtype, std::span<double> out) {
  require(stored.size() == out.size() * static_cast<size_t>(size_of(dtype)),
          "[weights] expected the byte count to be that of all elements");
  as_type(dtype, [&]<class T>(T) {
    for (size_t i = 0; i < out.size(); ++i) {
      T value;
      std::memcpy(&value, stored.data() + i * sizeof(T), sizeof(T));
      out[i] = widen(value);
    }
  });
}

void narrow_stored(std::span<const double> values, DType dtype, std::span<std::byte> stored) {
  require(stored.size() == values.size() * static_cast<size_t>(size_of(dtype)),
          "[weights] expected the byte count to be that of all elements");
  as_type(dtype, [&]<class T>(T) {
    for (size_t i = 0; i < values.size(); ++i) {
      const T value = narrow<T>(static_cast<Wide<T>>(values[i]));
      std::memcpy(stored.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
}

void read_narrowed(const std::function<void(i64 begin, std::span<double> out)>& read, DType dtype, std::span<std::byte> stored) {
  std::array<double, 4096> wide;
  const i64 width = size_of(dtype), count = std::ssize(stored) / width;
  for (i64 begin = 0; begin < count; begin += std::ssize(wide)) {
    const auto piece = std::span(wide).first(static_cast<size_t>(std::min(std::ssize(wide), count - begin)));
    read(begin, piece);
    narrow_stored(piece, dtype, stored.subspan(static_cast<size_t>(begin * width), piece.size() * static_cast<size_t>(width)));
  }
}

}  // namespace spillway::data

#include "tensor/shape.h"

#include <algorithm>

#include "base/error.h"
#include "tensor/dtype.h"

namespace spillway {

Shape::Shape(std::initializer_list<i64> extents) : Shape(std::span<const i64>(extents.begin(), extents.size())) {}

Shape::Shape(std::span<const i64> extents) : rank_(static_cast<int>(extents.size())) {
  if (rank_ > kMaxRank) throw Error(ErrorCode::bug, "[shape] expected at most 6 extents, got " + std::to_string(rank_));
  std::copy(extents.begin(), extents.end(), extents_.begin());
}

size_t Shape::index(int i) const {
  const int at = i < 0 ? i + rank_ : i;
  if (at < 0 || at >= rank_)
    throw Error(ErrorCode::bug, "[shape] there is no axis " + std::to_string(i) + " in the shape " + to_string(*this));
  return static_cast<size_t>(at);
}

i64 Shape::elems() const {
  i64 n = 1;
  for (i64 extent : extents()) {
    // With fewer than 2^59 elements the size in bytes fits 64 bits for any element type, so callers may multiply without a check.
    if (__builtin_mul_overflow(n, extent, &n) || n > i64{1} << 59) {
      throw Error(ErrorCode::bug, "[shape] " + to_string(*this) + " has more than 2^59 elements");
    }
  }
  return n;
}

bool Shape::operator==(const Shape& other) const { return std::ranges::equal(extents(), other.extents()); }

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (int i = 0; i < shape.rank(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string_view to_string(DType t) {
  switch (t) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::int32:
      return "i32";
    case DType::int64:
      return "i64";
    case DType::uint8:
      return "u8";
    case DType::boolean:
      return "bool";
  }
  return "?";
}

}  // namespace spillway

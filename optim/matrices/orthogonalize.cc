#include "optim/matrices/orthogonalize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "device/stream.h"
#include "kernels/matmul/matmul.h"
#include "optim/norm.h"

namespace spillway::optim {
namespace {

constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315, kLeastNorm = 1e-7;
constexpr int kSteps = 5;
constexpr i64 kAlignBytes = 64;
constexpr i64 kGrain = 4096;

// Where the matrices lie in the memory. S = the shorter side.
struct Parts {
  Parts(i64 rows, i64 columns, DType dtype) {
    const i64 shorter = std::min(rows, columns), size = size_of(dtype);
    matrix_bytes = round_up(rows * columns, kTileElems) * size;
    square_bytes = round_up(shorter * shorter * size, kAlignBytes);
    const Stream stream{Device::cpu(), nullptr, Stream::current().memory};
    const StreamScope scope(stream);
    workspace_bytes = std::max({kernels::matmul_workspace_bytes(shorter, shorter, std::max(rows, columns), dtype),
                                kernels::matmul_workspace_bytes(shorter, shorter, shorter, dtype),
                                kernels::matmul_workspace_bytes(rows, columns, shorter, dtype)});
  }
  i64 bytes() const { return 2 * matrix_bytes + 2 * square_bytes + workspace_bytes; }

  i64 matrix_bytes, square_bytes, workspace_bytes;
};

Tensor view(std::byte* memory, const Shape& shape, DType dtype) {
  auto storage = Storage::vacant(Device::cpu(), shape.elems() * size_of(dtype));
  storage->fill(memory);
  return Tensor(std::move(storage), 0, shape, dtype);
}

template <class T>
double norm_of(const T* x, i64 tiles) {
  std::vector<double> sums(static_cast<size_t>(tiles));
  Stream::current().run(tiles, [&](i64 t, int) {
    sums[static_cast<size_t>(t)] = tile_square_sum(std::span(x + t * kTileElems, static_cast<size_t>(kTileElems)));
  });
  double sum = 0;
  for (const double one : sums) sum += one;
  return std::sqrt(sum);
}

/// y = a x + b y
template <class T>
void blend(double a, const Tensor& x, double b, const Tensor& y) {
  const T ta = static_cast<T>(a), tb = static_cast<T>(b), *from = x.data<T>();
  T* to = y.data<T>();
  Stream::current().for_ranges(y.elems(), kGrain, [=](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) to[i] = ta * from[i] + tb * to[i];
  });
}

template <class T>
std::byte* iterate(std::byte* memory, i64 rows, i64 columns, DType dtype) {
  const Parts parts(rows, columns, dtype);
  const i64 shorter = std::min(rows, columns);
  const bool tall = rows > columns;
  Tensor x = view(memory, {rows, columns}, dtype), next = view(memory + parts.matrix_bytes, {rows, columns}, dtype);
  std::memset(next.raw() + next.bytes(), 0, static_cast<size_t>(parts.matrix_bytes - next.bytes()));
  std::byte* const squares = memory + 2 * parts.matrix_bytes;
  const Tensor a = view(squares, {shorter, shorter}, dtype), b = view(squares + parts.square_bytes, {shorter, shorter}, dtype);
  const Tensor workspace = view(squares + 2 * parts.square_bytes, {parts.workspace_bytes}, DType::uint8);
  const T norm = static_cast<T>(std::max(norm_of(x.data<T>(), parts.matrix_bytes / (kTileElems * size_of(dtype))), kLeastNorm));
  Stream::current().for_ranges(x.elems(), kGrain, [values = x.data<T>(), norm](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) values[i] /= norm;
  });
  for (int step = 0; step < kSteps; ++step) {
    const Tensor flipped = x.transpose(0, 1);
    tall ? kernels::matmul(flipped, x, {}, a, workspace) : kernels::matmul(x, flipped, {}, a, workspace);
    kernels::matmul(a, a, {}, b, workspace);
    blend<T>(kCubic, a, kQuintic, b);
    tall ? kernels::matmul(x, b, {}, next, workspace) : kernels::matmul(b, x, {}, next, workspace);
    blend<T>(kLinear, x, 1, next);
    std::swap(x, next);
  }
  return x.raw();
}

}  // namespace

i64 orthogonalize_bytes(i64 rows, i64 columns, DType dtype) { return Parts(rows, columns, dtype).bytes(); }

double orthogonalize_flops(i64 rows, i64 columns) {
  const auto shorter = static_cast<double>(std::min(rows, columns)), longer = static_cast<double>(std::max(rows, columns));
  return kSteps * 2 * shorter * shorter * (2 * longer + shorter);
}

std::byte* orthogonalize(std::byte* memory, i64 rows, i64 columns, DType dtype) {
  require(dtype == DType::f32 || dtype == DType::f64, "[orthogonalize] expected f32 or f64");
  return dtype == DType::f64 ? iterate<double>(memory, rows, columns, dtype) : iterate<float>(memory, rows, columns, dtype);
}

}  // namespace spillway::optim

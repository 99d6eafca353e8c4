#include "optim/matrices/orthogonalize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "device/stream.h"
#include "device/transfer.h"
#include "kernels/accumulate.h"
#include "kernels/elementwise/elementwise.h"
#include "kernels/products/matmul.h"
#include "optim/norm.h"

namespace spillway::optim {
namespace {

constexpr double kLinear = 3.4445, kCubic = -4.7750, kQuintic = 2.0315, kLeastNorm = 1e-7;
constexpr int kSteps = 5;
constexpr i64 kAlignBytes = 256;  // the alignment in bytes that a GPU's matrix products need
constexpr i64 kGrain = 4096;

i64 matrix_bytes(i64 rows, i64 columns, DType dtype) { return round_up(rows * columns, kTileElems) * size_of(dtype); }

// The sizes of the parts of the working memory: two copies of the matrix, two square matrices of the shorter side, and a workspace.
struct Parts {
  Parts(i64 rows, i64 columns, DType dtype, Device::Kind device) {
    const i64 shorter = std::min(rows, columns);
    matrix = matrix_bytes(rows, columns, dtype);
    square = round_up(shorter * shorter * size_of(dtype), kAlignBytes);
    const Stream stream{Device::meta(device), nullptr, Stream::current().memory};
    const StreamScope scope(stream);
    workspace = std::max({kernels::matmul_workspace_bytes(shorter, shorter, std::max(rows, columns), dtype),
                          kernels::matmul_workspace_bytes(shorter, shorter, shorter, dtype),
                          kernels::matmul_workspace_bytes(rows, columns, shorter, dtype)});
  }
  i64 bytes() const { return 2 * matrix + 2 * square + workspace; }

  i64 matrix, square, workspace;  // the sizes of the parts in bytes
};

Tensor view(std::byte* memory, const Shape& shape, DType dtype) {
  auto storage = Storage::vacant(Stream::current().device, shape.elems() * size_of(dtype));
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

// Divides the matrix, which lies in host memory, by its norm.
template <class T>
void normalise(std::byte* matrix, i64 rows, i64 columns) {
  T* const values = reinterpret_cast<T*>(matrix);
  const T norm = static_cast<T>(std::max(norm_of(values, ceil_div(rows * columns, kTileElems)), kLeastNorm));
  Stream::current().for_ranges(rows * columns, kGrain, [=](i64 begin, i64 end) {
    for (i64 i = begin; i < end; ++i) values[i] /= norm;
  });
}
void normalise(std::byte* matrix, i64 rows, i64 columns, DType dtype) {
  require(dtype == DType::f32 || dtype == DType::f64, "[orthogonalize] expected a matrix of f32 or f64");
  dtype == DType::f64 ? normalise<double>(matrix, rows, columns) : normalise<float>(matrix, rows, columns);
}

/// Computes y = a x + b y. As a side effect x becomes a x.
void blend(double a, const Tensor& x, double b, const Tensor& y) {
  kernels::scale(x, a, x);
  if (b != 1) kernels::scale(y, b, y);
  kernels::add(x, y, y);
}

// Runs the Newton-Schulz steps on the normalised matrix at the front of `memory`, on the device of the current stream. Returns the address
// of the result.
std::byte* iterate(const Parts& parts, std::byte* memory, i64 rows, i64 columns, DType dtype) {
  const i64 shorter = std::min(rows, columns);
  const bool tall = rows > columns;
  Tensor x = view(memory, {rows, columns}, dtype), next = view(memory + parts.matrix, {rows, columns}, dtype);
  std::byte* const squares = memory + 2 * parts.matrix;
  const Tensor a = view(squares, {shorter, shorter}, dtype), b = view(squares + parts.square, {shorter, shorter}, dtype);
  const Tensor workspace = view(squares + 2 * parts.square, {parts.workspace}, DType::uint8);
  for (int step = 0; step < kSteps; ++step) {
    const Tensor flipped = x.transpose(0, 1);
    tall ? kernels::matmul(flipped, x, {}, a, workspace) : kernels::matmul(x, flipped, {}, a, workspace);
    kernels::matmul(a, a, {}, b, workspace);
    blend(kCubic, a, kQuintic, b);
    tall ? kernels::matmul(x, b, {}, next, workspace) : kernels::matmul(b, x, {}, next, workspace);
    blend(kLinear, x, 1, next);
    std::swap(x, next);
  }
  return x.raw();
}

}  // namespace

i64 orthogonalize_bytes(i64 rows, i64 columns, DType dtype, Device::Kind device) { return Parts(rows, columns, dtype, device).bytes(); }

double orthogonalize_flops(i64 rows, i64 columns) {
  const auto shorter = static_cast<double>(std::min(rows, columns)), longer = static_cast<double>(std::max(rows, columns));
  return kSteps * 2 * shorter * shorter * (2 * longer + shorter);
}

std::byte* orthogonalize(std::byte* memory, i64 rows, i64 columns, DType dtype) {
  normalise(memory, rows, columns, dtype);
  const Parts parts(rows, columns, dtype, Device::Kind::cpu);
  const i64 used = rows * columns * size_of(dtype);
  std::memset(memory + parts.matrix + used, 0, static_cast<size_t>(parts.matrix - used));
  return iterate(parts, memory, rows, columns, dtype);
}

void orthogonalize_on_gpu(std::byte* matrix, i64 rows, i64 columns, DType dtype, std::byte* there) {
  normalise(matrix, rows, columns, dtype);
  const i64 used = rows * columns * size_of(dtype);
  put_transfer(there, matrix, used);
  transfer(matrix, iterate(Parts(rows, columns, dtype, Device::Kind::cuda), there, rows, columns, dtype), used);
}

}  // namespace spillway::optim

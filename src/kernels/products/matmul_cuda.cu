// Products of row-major views with cuBLASLt, which is column-major. A row-major C = A B is a
// column-major C^T = B^T A^T, so the first operand that cuBLASLt gets is the second operand of matmul().
#include <numeric>

#include "device/launch_cuda.h"
#include "kernels/elements_cuda.h"
#include "kernels/products/matmul.h"
#include "kernels/products/matmul_plain_cuda.h"
#include "kernels/products/matmul_plan_cuda.h"

namespace spillway::kernels::cuda {
namespace {

constexpr i64 kLoad = 16;  // the most bytes that a kernel loads at once; a better alignment makes no difference

i64 alignment_of(std::uintptr_t bytes) { return bytes % kLoad == 0 ? kLoad : static_cast<i64>(bytes & -bytes); }

// Returns the alignment of x in bytes that cuBLASLt may rely on. It is the largest power of two, up to kLoad, that divides both the width
// of x and its row stride, both in bytes. It does not depend on the address, so a product has one plan wherever its operands lie in memory.
// If the address itself is aligned worse, which happens in no model, its own alignment is returned and the product gets a separate plan.
i64 alignment_of(const Tensor& x, i64 inner, i64 pitch) {
  const i64 bytes = std::gcd(inner, pitch) * size_of(x.dtype());
  return std::min(alignment_of(static_cast<std::uintptr_t>(bytes)), alignment_of(reinterpret_cast<std::uintptr_t>(x.raw())));
}

// Describes a row-major x as a column-major matrix for cuBLASLt. If x's rows are contiguous,
// that matrix is x's transpose. If x's columns are contiguous, it is x itself, which cuBLASLt
// transposes. A single row or column may have any stride. `what` names x in the error message.
BlasMatrix columns_of(const Tensor& x, const char* what) {
  const i64 rows = x.size(0), columns = x.size(1);
  const bool rows_lie = (columns == 1 || x.stride(1) == 1) && (rows == 1 || x.stride(0) >= columns);
  if (rows_lie) {
    const i64 pitch = rows == 1 ? columns : x.stride(0);
    return {columns, rows, pitch, false, alignment_of(x, columns, pitch)};
  }
  const bool columns_lie = (rows == 1 || x.stride(0) == 1) && (columns == 1 || x.stride(1) >= rows);
  if (columns_lie) {
    const i64 pitch = columns == 1 ? rows : x.stride(1);
    return {rows, columns, pitch, true, alignment_of(x, rows, pitch)};
  }
  throw Error(ErrorCode::bug, std::string("[matmul] on a GPU expected ") + what + " to have one stride of 1 and no overlap, got " +
                                  to_string(x.shape()) + " with strides " + std::to_string(x.stride(0)) + ", " +
                                  std::to_string(x.stride(1)) + ": make it contiguous");
}

template <class T, class Out>
__global__ void put_bias(i64 m, i64 n, i64 row_stride, const T* bias, Out* out, bool adds) {
  const i64 step = i64{gridDim.x} * blockDim.x;
  for (i64 i = i64{blockIdx.x} * blockDim.x + threadIdx.x; i < m * n; i += step) {
    Out& to = out[i / n * row_stride + i % n];
    to = narrow<Out>(adds ? widen(to) + widen(bias[i % n]) : widen(bias[i % n]));
  }
}

template <class T, class Out>
void launch_put_bias(const Tensor& bias, const Tensor& out, Store store) {
  launch("put_bias", put_bias<T, Out>, blocks_for(out.elems()), dim3(kBlockThreads), out.size(0), out.size(1), out.stride(0),
         bias.data<T>(), out.data<Out>(), store == Store::add);
}

template <class T>
void launch_half_bias(const Tensor& bias, const Tensor& out, Store store) {
  out.dtype() == DType::f32 ? launch_put_bias<T, float>(bias, out, store) : launch_put_bias<T, T>(bias, out, store);
}

// Adds the bias to every row of out. With Store::replace, every row is overwritten with the bias.
void bias_into(const Tensor& bias, const Tensor& out, Store store) {
  switch (bias.dtype()) {
    case DType::f64:
      return launch_put_bias<double, double>(bias, out, store);
    case DType::f32:
      return launch_put_bias<float, float>(bias, out, store);
    case DType::f16:
      return launch_half_bias<Float16>(bias, out, store);
    default:
      return launch_half_bias<BFloat16>(bias, out, store);
  }
}

// Computes D = A B (+ C) (+ bias). C may be D. `gelu` is the second matrix of an epilogue.
template <class Scale>
void multiply(const MatmulPlan& plan, const MatmulKey& key, const Tensor& first, const Tensor& second, const void* bias, const Tensor& out,
              const Tensor& workspace, const void* c = nullptr, const void* gelu = nullptr) {
  MatmulKey done = key;
  if (!plan.adds_bias) done.bias_alignment = 0;
  const BlasLtDesc desc = matmul_desc(done, plan.adds_bias ? bias : nullptr, gelu);
  const Scale one = 1, kept = c ? 1 : 0;
  blas_lt_check(blas_lt().matmul(plan.handle, desc.get(), &one, first.raw(), plan.a.get(), second.raw(), plan.b.get(), &kept,
                                 c ? c : out.raw(), plan.d.get(), out.raw(), plan.d.get(), &*plan.algo, workspace.raw(),
                                 static_cast<size_t>(plan.workspace_bytes), Stream::current().queue),
                "cublasLtMatmul");
}

// Returns whether cuBLASLt can add the bias: the bias must have the result's dtype, which is
// f32 or narrower. In all other cases a kernel of ours adds the bias, with equal rounding.
bool takes_bias(const Tensor& a, const Tensor& bias, const Tensor& out) {
  return bias.defined() && a.dtype() == out.dtype() && out.dtype() != DType::f64;
}

MatmulKey key_of(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out) {
  return {Stream::current().device.index,
          a.dtype(),
          out.dtype(),
          columns_of(b, "the second operand"),
          columns_of(a, "the first operand"),
          columns_of(out, "the result"),
          takes_bias(a, bias, out) ? alignment_of(reinterpret_cast<std::uintptr_t>(bias.raw())) : 0,
          matmul_workspace_bytes(out.size(0), out.size(1), a.size(1), a.dtype(), out.dtype()),
          Stream::current().tf32.matmul && a.dtype() == DType::f32};
}

// Computes a product with an epilogue. cublasLt.h requires the second matrix's leading
// dimension to "be divisible by 8". This holds if the matrix's rows are multiples of 16 bytes.
bool multiply_gelu(Epilogue epilogue, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& kept, const Tensor& out,
                   const Tensor& workspace) {
  if (!is_half(out.dtype()) || a.dtype() != out.dtype()) return false;
  MatmulKey key = key_of(a, b, bias, out);
  key.epilogue = epilogue;
  if (key.d.alignment < kLoad || key.d.leading % 8 != 0 || !is_aligned(kept.raw(), kLoad)) return false;
  const MatmulPlan& plan = matmul_plan(key);
  if (!plan.algo) return false;
  multiply<float>(plan, key, b, a, bias.defined() ? bias.raw() : nullptr, out, workspace, nullptr, kept.raw());
  return true;
}

}  // namespace

bool matmul_onto(const Tensor& addend, const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace) {
  MatmulKey key = key_of(a, b, bias, out);
  key.d.alignment = std::min(key.d.alignment, columns_of(addend, "the addend").alignment);
  const MatmulPlan& plan = matmul_plan(key);
  if (!plan.algo || plan.adds_bias != bias.defined()) return false;
  const void* added = bias.defined() ? bias.raw() : nullptr;
  a.dtype() == DType::f64 ? multiply<double>(plan, key, b, a, added, out, workspace, addend.raw())
                          : multiply<float>(plan, key, b, a, added, out, workspace, addend.raw());
  return true;
}

bool matmul_gelu(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& kept, const Tensor& out, const Tensor& workspace) {
  return multiply_gelu(Epilogue::gelu, a, b, bias, kept, out, workspace);
}

bool matmul_gelu_gradient(const Tensor& a, const Tensor& b, const Tensor& kept, const Tensor& out, const Tensor& workspace) {
  return multiply_gelu(Epilogue::gelu_gradient, a, b, {}, kept, out, workspace);
}

void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace, Store store) {
  require(is_aligned(workspace.raw(), kAllocationAlignment), "[matmul] expected a workspace whose address is a multiple of 256 bytes");
  const bool fused = takes_bias(a, bias, out);
  const MatmulKey key = key_of(a, b, bias, out);
  require(!key.d.transposed, "[matmul] expected a result whose rows do not overlap");
  const MatmulPlan& plan = matmul_plan(key);
  if (!plan.algo) return plain_matmul(a, b, bias, out, store);
  const void* added = fused ? bias.raw() : nullptr;
  // A bf16 or f16 result must be rounded only once. So the bias is written to out first, and cuBLASLt adds the product before it rounds.
  const bool apart = bias.defined() && !plan.adds_bias, before = apart && is_half(out.dtype());
  if (before) bias_into(bias, out, Store::replace), store = Store::add;
  const void* onto = store == Store::add ? out.raw() : nullptr;
  a.dtype() == DType::f64 ? multiply<double>(plan, key, b, a, added, out, workspace, onto)
                          : multiply<float>(plan, key, b, a, added, out, workspace, onto);
  if (apart && !before) bias_into(bias, out, Store::add);
}

}  // namespace spillway::kernels::cuda

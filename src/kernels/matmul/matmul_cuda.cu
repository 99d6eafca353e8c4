// Rows are BLAS's columns: C = A B of rows is C^T = B^T A^T of columns, so that BLAS's first operand is our second.
#include "device/launch_cuda.h"
#include "kernels/elements_cuda.h"
#include "kernels/matmul/matmul.h"
#include "kernels/matmul/matmul_plan_cuda.h"

namespace spillway::kernels::cuda {
namespace {

// 16 bytes are the most that a kernel loads at once; what is aligned better is not another case.
i64 alignment_of(const void* at) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  return address % 16 == 0 ? 16 : static_cast<i64>(address & -address);
}

// x's transpose, of which the columns lie in memory, or which is to be used transposed. A row or column alone has any stride.
BlasMatrix columns_of(const Tensor& x, const char* what) {
  const i64 rows = x.size(0), columns = x.size(1), alignment = alignment_of(x.raw());
  const bool rows_lie = (columns == 1 || x.stride(1) == 1) && (rows == 1 || x.stride(0) >= columns);
  if (rows_lie) return {columns, rows, rows == 1 ? columns : x.stride(0), false, alignment};
  const bool columns_lie = (rows == 1 || x.stride(0) == 1) && (columns == 1 || x.stride(1) >= rows);
  if (columns_lie) return {rows, columns, columns == 1 ? rows : x.stride(1), true, alignment};
  throw Error(ErrorCode::bug, std::string("[matmul] on a GPU expected ") + what + " to have one stride of 1 and no overlap, got " +
                                  to_string(x.shape()) + " with strides " + std::to_string(x.stride(0)) + ", " +
                                  std::to_string(x.stride(1)) + ": make it contiguous");
}

template <class T, class Out>
__global__ void add_bias(i64 m, i64 n, i64 row_stride, const T* bias, Out* out) {
  const i64 step = i64{gridDim.x} * blockDim.x;
  for (i64 i = i64{blockIdx.x} * blockDim.x + threadIdx.x; i < m * n; i += step) out[i / n * row_stride + i % n] += widen(bias[i % n]);
}

template <class T, class Out>
void launch_add_bias(const Tensor& bias, const Tensor& out) {
  launch("add_bias", add_bias<T, Out>, blocks_for(out.elems()), dim3(kBlockThreads), out.size(0), out.size(1), out.stride(0),
         bias.data<T>(), out.data<Out>());
}

// D = A B (+ D) (+ bias)
template <class Scale>
void multiply(const MatmulKey& key, const Tensor& first, const Tensor& second, const void* bias, const Tensor& out, const Tensor& workspace,
              Store store) {
  const MatmulPlan& plan = matmul_plan(key);
  const BlasLtDesc desc = matmul_desc(key, bias);
  const Scale one = 1, kept = store == Store::add ? 1 : 0;
  blas_lt_check(blas_lt().matmul(plan.handle, desc.get(), &one, first.raw(), plan.a.get(), second.raw(), plan.b.get(), &kept, out.raw(),
                                 plan.d.get(), out.raw(), plan.d.get(), &plan.algo, workspace.raw(),
                                 static_cast<size_t>(key.workspace_bytes), Stream::current().queue),
                "cublasLtMatmul");
}

}  // namespace

void matmul(const Tensor& a, const Tensor& b, const Tensor& bias, const Tensor& out, const Tensor& workspace, Store store) {
  const i64 m = out.size(0), n = out.size(1), k = a.size(1);
  require(is_aligned(workspace.raw(), kAllocationAlignment), "[matmul] the workspace must begin at a multiple of 256 bytes");
  // cuBLASLt takes a bias of the result's type, and of f32 and narrower. A wide result is rounded the same by a kernel of ours.
  const bool fused = bias.defined() && a.dtype() == out.dtype() && out.dtype() != DType::f64;
  const MatmulKey key{Stream::current().device.index,
                      a.dtype(),
                      out.dtype(),
                      columns_of(b, "the second operand"),
                      columns_of(a, "the first operand"),
                      columns_of(out, "the result"),
                      fused ? alignment_of(bias.raw()) : 0,
                      matmul_workspace_bytes(m, n, k, a.dtype(), out.dtype()),
                      Stream::current().tf32.matmul && a.dtype() == DType::f32};
  require(!key.d.transposed, "[matmul] the rows of the result must not overlap");
  const void* added = fused ? bias.raw() : nullptr;
  if (a.dtype() == DType::f64) {
    multiply<double>(key, b, a, added, out, workspace, store);
    if (bias.defined()) launch_add_bias<double, double>(bias, out);
  } else {
    multiply<float>(key, b, a, added, out, workspace, store);
    if (!bias.defined() || fused) return;
    a.dtype() == DType::f16 ? launch_add_bias<Float16, float>(bias, out) : launch_add_bias<BFloat16, float>(bias, out);
  }
}

}  // namespace spillway::kernels::cuda

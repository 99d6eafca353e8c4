// Products over the rows of experts on tensor cores, for bf16 and f16. expert_products_cuda.cu calls these functions, each of which
// launches one kernel for up to kMostExperts experts. Legend: M = rows of all experts together, O = outputs, I = inputs.
#pragma once
#include "kernels/experts/expert_products.h"

namespace spillway::kernels::expert_mma {

/// The number of experts of a launch. A kernel gets one pointer for each as a parameter, so that no table needs to be copied to the GPU.
constexpr int kMostExperts = 256;

/// Pointers to the weights or results of the experts of a launch; a null result is not computed. `begin` points to the first of the count +
/// 1 numbers that say where the experts' rows begin.
template <class At>
struct Experts {
  const i32* begin;
  int count;
  At* at[kMostExperts];
};

/// Products of rows and weights: out[r] = a[r] w^T or a[r] w. a has k columns and out has n.
template <class H>
struct RowsProblem {
  const H* a;
  H* out;
  i64 rows;  // M
  int n, k;
  Experts<const std::byte> weights;
};
/// Sums over rows: out[e][O, I] = a^T b over the rows of expert e.
template <class H, class Out>
struct WeightProblem {
  const H *a, *b;
  int outputs, inputs;
  Experts<Out> out;
};

/// Each kernel copies words of 16 bytes. So O and I must be multiples of 8, and all pointers multiples of 16 (of 8 for quantized weights).
/// H is BFloat16 or Float16.
template <class H>
void multiply_rows(const RowsProblem<H>& p, ExpertProduct product, WeightFormat format);
template <class H, class Out>
void multiply_over_rows(const WeightProblem<H, Out>& p);

}  // namespace spillway::kernels::expert_mma

#include "kernels/products/matmul_plan_cuda.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "device/cuda_handle.h"

namespace spillway::kernels {
namespace {

cudaDataType_t blas_type(DType dtype) {
  if (dtype == DType::f16) return CUDA_R_16F;
  return dtype == DType::f64 ? CUDA_R_64F : dtype == DType::f32 ? CUDA_R_32F : CUDA_R_16BF;
}

cudaDataType_t blas_type(Fp8 format) { return format == Fp8::e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2; }

BlasLtLayout make_layout(const BlasMatrix& x, cudaDataType_t type) {
  cublasLtMatrixLayout_t made = nullptr;
  blas_lt_check(blas_lt().layout_create(&made, type, static_cast<std::uint64_t>(x.rows), static_cast<std::uint64_t>(x.columns), x.leading),
                "cublasLtMatrixLayoutCreate");
  return BlasLtLayout(made);
}

cublasLtEpilogue_t blas_epilogue(Epilogue epilogue, bool bias) {
  if (epilogue == Epilogue::gelu_gradient) return CUBLASLT_EPILOGUE_DGELU;
  if (epilogue == Epilogue::gelu) return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

template <class T>
void set(const BlasLtDesc& desc, cublasLtMatmulDescAttributes_t attribute, T value) {
  blas_lt_check(blas_lt().desc_set(desc.get(), attribute, &value, sizeof value), "cublasLtMatmulDescSetAttribute");
}
template <class T>
void set(const BlasLtPreference& preference, cublasLtMatmulPreferenceAttributes_t attribute, T value) {
  blas_lt_check(blas_lt().preference_set(preference.get(), attribute, &value, sizeof value), "cublasLtMatmulPreferenceSetAttribute");
}

// The ways in which cuBLASLt may combine partial sums if it splits k. We allow one: "intermediate results
// are stored in compute type in the workspace and reduced in a separate step"
// (cublasLtReductionScheme_t). The two other schemes would round every partial sum to the result's dtype.
constexpr std::uint32_t kSchemes = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;

BlasLtPreference preference_of(const MatmulKey& key) {
  cublasLtMatmulPreference_t made = nullptr;
  blas_lt_check(blas_lt().preference_create(&made), "cublasLtMatmulPreferenceCreate");
  BlasLtPreference wish(made);
  set(wish, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::uint64_t>(key.workspace_bytes));
  set(wish, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, kSchemes);
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, static_cast<std::uint32_t>(key.a.alignment));
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, static_cast<std::uint32_t>(key.b.alignment));
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, static_cast<std::uint32_t>(key.d.alignment));
  set(wish, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, static_cast<std::uint32_t>(key.d.alignment));
  return wish;
}

std::string describe(const char* name, const BlasMatrix& x, std::string_view type) {
  return fmt::format("{} {} {} x {}{}, leading dimension {}, aligned to {} bytes", name, type, x.rows, x.columns,
                     x.transposed ? " transposed" : "", x.leading, x.alignment);
}

std::string_view to_string(Fp8 format) { return format == Fp8::e4m3 ? "e4m3" : "e5m2"; }

[[noreturn]] void throw_no_way(const MatmulKey& key, cublasStatus_t status) {
  const std::string_view a = key.fp8 ? to_string(key.fp8->a) : to_string(key.in), b = key.fp8 ? to_string(key.fp8->b) : a;
  throw Error(
      ErrorCode::io,
      fmt::format("[matmul] expected cuBLASLt to have an algorithm on cuda:{}, got {} for {}; {}; {}{}: try another version of cuBLAS{}",
                  key.gpu, blas_lt().status_name(status), describe("A", key.a, a), describe("B", key.b, b),
                  describe("D", key.d, to_string(key.out)), key.bias_alignment > 0 ? " with a bias" : "",
                  key.fp8 ? ", or --precision bf16" : ""));
}

// Returns the algorithm that cuBLASLt's heuristic ranks first, or nothing if the heuristic knows none.
std::optional<cublasLtMatmulAlgo_t> ask(const MatmulPlan& plan, const MatmulKey& key, cublasStatus_t& status) {
  // The pointers given to the heuristic need not be valid: it reads neither the bias
  // nor the second matrix nor factors, only the alignment of their addresses.
  const void* like_d = key.epilogue == Epilogue::none ? nullptr : reinterpret_cast<const void*>(key.d.alignment);
  const auto* factor = key.fp8 ? reinterpret_cast<const float*>(key.a.alignment) : nullptr;
  const BlasLtDesc desc = matmul_desc(key, reinterpret_cast<const void*>(key.bias_alignment), like_d, factor, factor);
  const BlasLtPreference wish = preference_of(key);
  cublasLtMatmulHeuristicResult_t best{};
  int count = 0;
  status =
      blas_lt().heuristic(plan.handle, desc.get(), plan.a.get(), plan.b.get(), plan.d.get(), plan.d.get(), wish.get(), 1, &best, &count);
  if (status != CUBLAS_STATUS_SUCCESS || count < 1 || best.state != CUBLAS_STATUS_SUCCESS) return {};
  return best.algo;
}

MatmulPlan choose(cublasLtHandle_t handle, const MatmulKey& key) {
  const cudaDataType_t a = key.fp8 ? blas_type(key.fp8->a) : blas_type(key.in), b = key.fp8 ? blas_type(key.fp8->b) : a;
  MatmulPlan plan{handle, make_layout(key.a, a), make_layout(key.b, b), make_layout(key.d, blas_type(key.out)), {}};
  MatmulKey plainer = key, plainest = key;
  plainer.bias_alignment = plainest.bias_alignment = plainest.workspace_bytes = 0;
  cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
  for (const MatmulKey* one : std::initializer_list<const MatmulKey*>{&key, &plainer, &plainest}) {
    if (key.epilogue != Epilogue::none && one != &key) return plan;
    if (key.fp8 && one != &key) break;
    plan.algo = ask(plan, *one, status);
    plan.adds_bias = one->bias_alignment > 0;
    plan.workspace_bytes = one->workspace_bytes;
    if (plan.algo) return plan;
  }
  if (key.fp8 || !plain_matmul_takes(key.in, key.out)) throw_no_way(key, status);
  return plan;
}

// The plans that the process keeps. They are never destroyed, because CUDA may already be shut down when the process ends.
struct Memo {
  std::mutex mutex;
  std::map<int, cublasLtHandle_t> handles;  // one handle for each GPU, made while that GPU was current
  std::map<MatmulKey, MatmulPlan> plans;

  static Memo& of_process() {
    static Memo& one = *new Memo;
    return one;
  }
  cublasLtHandle_t handle_of(int gpu) {
    if (const auto known = handles.find(gpu); known != handles.end()) return known->second;
    int current = -1;
    cuda_check(cudaGetDevice(&current), "cudaGetDevice");
    require(current == gpu, "[matmul] expected the GPU of the current stream to be the current GPU of this thread");
    cublasLtHandle_t made = nullptr;
    blas_lt_check(blas_lt().create(&made), "cublasLtCreate");
    return handles[gpu] = made;
  }
};

}  // namespace

BlasLtDesc matmul_desc(const MatmulKey& key, const void* bias, const void* gelu, const float* a_factor, const float* b_factor) {
  const bool f64 = key.in == DType::f64;
  cublasLtMatmulDesc_t made = nullptr;
  // CUBLAS_COMPUTE_32F computes in fp32 throughout, unlike CUBLAS_COMPUTE_32F_FAST_TF32.
  const cublasComputeType_t compute = f64 ? CUBLAS_COMPUTE_64F : key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  blas_lt_check(blas_lt().desc_create(&made, compute, f64 ? CUDA_R_64F : CUDA_R_32F), "cublasLtMatmulDescCreate");
  BlasLtDesc desc(made);
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, static_cast<std::int32_t>(key.a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, static_cast<std::int32_t>(key.b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N));
  set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(blas_epilogue(key.epilogue, bias != nullptr)));
  if (bias) set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  // Attribute FAST_ACCUM keeps its default, off: sums of fp8 products are then as exact as cuBLASLt can make them.
  if (a_factor) set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const void*>(a_factor));
  if (b_factor) set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const void*>(b_factor));
  if (gelu) {
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, gelu);
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<std::int64_t>(key.d.leading));
  }
  return desc;
}

const MatmulPlan& matmul_plan(const MatmulKey& key) {
  Memo& memo = Memo::of_process();
  const std::lock_guard lock(memo.mutex);
  if (const auto known = memo.plans.find(key); known != memo.plans.end()) return known->second;
  return memo.plans.emplace(key, choose(memo.handle_of(key.gpu), key)).first->second;
}

}  // namespace spillway::kernels

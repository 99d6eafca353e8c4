// Implements the emulated cuBLASLt: column-major matrix products, computed in plain loops.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include <cublasLt.h>
#include "work.h"

struct cublasLtContext {};

namespace emulated_cuda {
namespace {

// The structs below hold the contents of the library's opaque structs.
struct Layout {
  std::uint64_t type, rows, columns, leading, unused[4];
};
struct Desc {
  std::uint64_t compute, scale, transpose_a, transpose_b, epilogue, bias, aux, aux_leading, scale_a, scale_b, unused[22];

  bool has_bias() const { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  bool has_aux() const { return epilogue >= CUBLASLT_EPILOGUE_GELU_AUX; }  // returns whether gelu, or its gradient, has an auxiliary tensor
};
struct Preference {
  std::uint64_t workspace_bytes, schemes, alignment[4], unused[2];  // alignment: the alignments in bytes of A, B, C and D
};
struct Algo {
  std::uint64_t m, n, k, scheme, workspace_bytes, alignment[3];  // alignment: the alignments in bytes of A, of B, and of D with its bias
};

const Layout& seen(cublasLtMatrixLayout_t layout) { return reinterpret_cast<const Layout&>(*layout); }
Desc& seen(cublasLtMatmulDesc_t desc) { return reinterpret_cast<Desc&>(*desc); }
Preference& seen(cublasLtMatmulPreference_t preference) { return reinterpret_cast<Preference&>(*preference); }
const Algo& seen(const cublasLtMatmulAlgo_t* algo) { return reinterpret_cast<const Algo&>(*algo); }

struct Bf16 {
  std::uint16_t bits;
};
struct F16 {
  _Float16 value;
};
// A number of 8 bits: a sign, `8 - 1 - kFraction` bits of exponent and kFraction bits of fraction.
template <int kFraction>
struct F8 {
  std::uint8_t bits;
};
using E4m3 = F8<3>;
using E5m2 = F8<2>;
double wide(double x) { return x; }
float wide(float x) { return x; }
float wide(Bf16 x) { return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16); }
float wide(F16 x) { return static_cast<float>(x.value); }
template <int kFraction>
float value_of_code(int code) {
  constexpr int kBias = (1 << (6 - kFraction)) - 1;
  const int exponent = (code & 0x7f) >> kFraction, fraction = code & ((1 << kFraction) - 1);
  const bool is_nan = kFraction == 3 ? (code & 0x7f) == 0x7f : exponent == 31;
  if (is_nan) return std::nanf("");
  const int whole = exponent == 0 ? fraction : fraction + (1 << kFraction);
  const float magnitude = std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - kBias - kFraction);
  return code & 0x80 ? -magnitude : magnitude;
}
template <int kFraction>
float wide(F8<kFraction> x) {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all{};
    for (int code = 0; code < 256; ++code) all[static_cast<size_t>(code)] = value_of_code<kFraction>(code);
    return all;
  }();
  return values[x.bits];
}
template <class To, class From>
To rounded(From x) {
  if constexpr (std::is_same_v<To, F16>) {
    return {static_cast<_Float16>(x)};
  } else if constexpr (std::is_same_v<To, Bf16>) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    if (std::isnan(x)) return {static_cast<std::uint16_t>(bits >> 16 | 0x40)};
    return {static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16)};
  } else {
    return x;
  }
}

// Stores all that the loop of a product needs until the stream reaches it.
struct Product {
  Desc desc;
  Layout a, b, c, d;
  Algo algo;
  const void *a_data, *b_data, *c_data;
  void* d_data;
  void* workspace;
  double alpha, beta;
};

// Rounds to TF32: the nearest number with 10 mantissa bits, ties away from zero.
float tf32(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0x1000u) & ~0x1fffu;
  std::memcpy(&x, &bits, sizeof bits);
  return x;
}

// Approximates gelu with tanh (Hendrycks and Gimpel, arXiv:1606.08415), as cuBLASLt does.
template <class T>
T gelu(T x) {
  return T(0.5) * x * (1 + std::tanh(T(0.7978845608028654) * (x + T(0.044715) * x * x * x)));
}
template <class T>
T gelu_slope(T x) {
  const T root = T(0.7978845608028654), t = std::tanh(root * (x + T(0.044715) * x * x * x));
  return T(0.5) * (1 + t) + T(0.5) * x * (1 - t * t) * root * (1 + T(3 * 0.044715) * x * x);
}

template <class InA, class InB, class Out, class Sum, bool kTf32 = false>
void multiply_two(const Product& p) {
  const auto* a = static_cast<const InA*>(p.a_data);
  const auto* b = static_cast<const InB*>(p.b_data);
  const auto* c = static_cast<const Out*>(p.c_data);
  auto* d = static_cast<Out*>(p.d_data);
  const auto* bias = reinterpret_cast<const Out*>(p.desc.bias);
  const std::uint64_t a_row = p.desc.transpose_a ? p.a.leading : 1, a_k = p.desc.transpose_a ? 1 : p.a.leading;
  const std::uint64_t b_k = p.desc.transpose_b ? p.b.leading : 1, b_column = p.desc.transpose_b ? 1 : p.b.leading;
  const auto alpha = static_cast<Sum>(p.alpha), beta = static_cast<Sum>(p.beta);
  const auto operand = [](const auto& x) { return static_cast<Sum>(kTf32 ? tf32(static_cast<float>(wide(x))) : wide(x)); };
  const auto chain = [&](std::uint64_t i, std::uint64_t j, std::uint64_t begin, std::uint64_t end) {
    Sum sum = 0;
    for (std::uint64_t k = begin; k < end; ++k) sum += operand(a[i * a_row + k * a_k]) * operand(b[k * b_k + j * b_column]);
    return sum;
  };
  const auto whole = [&](std::uint64_t i, std::uint64_t j) {
    const std::uint64_t middle = p.algo.k / 2;
    if (p.algo.scheme == CUBLASLT_REDUCTION_SCHEME_NONE) return chain(i, j, 0, p.algo.k);
    if (p.algo.scheme != CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)
      return static_cast<Sum>(wide(rounded<Out>(chain(i, j, 0, middle)))) + chain(i, j, middle, p.algo.k);
    Sum& first = static_cast<Sum*>(p.workspace)[j * p.algo.m + i];
    first = chain(i, j, 0, middle);
    return first + chain(i, j, middle, p.algo.k);
  };
  auto* aux = reinterpret_cast<Out*>(p.desc.aux);
  const Running running;
  const auto factor = [](std::uint64_t at) { return at == 0 ? Sum(1) : static_cast<Sum>(*reinterpret_cast<const float*>(at)); };
  const Sum scale_a = factor(p.desc.scale_a), scale_b = factor(p.desc.scale_b);
  for (std::uint64_t j = 0; j < p.algo.n; ++j) {
    for (std::uint64_t i = 0; i < p.algo.m; ++i) {
      Sum sum = alpha * scale_a * scale_b * whole(i, j);
      if (beta != 0) sum += beta * static_cast<Sum>(wide(c[j * p.c.leading + i]));
      if (p.desc.has_bias()) sum += static_cast<Sum>(wide(bias[i]));
      if (p.desc.epilogue == CUBLASLT_EPILOGUE_DGELU) {
        sum *= gelu_slope(static_cast<Sum>(wide(aux[j * p.desc.aux_leading + i])));
      } else if (p.desc.has_aux()) {
        aux[j * p.desc.aux_leading + i] = rounded<Out>(sum);
        sum = gelu(sum);
      }
      d[j * p.d.leading + i] = rounded<Out>(sum);
    }
    memory_written(d + j * p.d.leading, p.algo.m * sizeof(Out));
    if (p.desc.has_aux()) memory_written(aux + j * p.desc.aux_leading, p.algo.m * sizeof(Out));
  }
}

template <class In, class Out, class Sum, bool kTf32 = false>
void multiply(const Product& p) {
  multiply_two<In, In, Out, Sum, kTf32>(p);
}

using Multiply = void (*)(const Product&);

bool is_fp8(const Layout& x) { return x.type == CUDA_R_8F_E4M3 || x.type == CUDA_R_8F_E5M2; }

// Returns the loop for a product of 8-bit numbers, or null. On Hopper they have "the TN format (A transposed, B not)", whole packs of 16
// in all extents, and two operands in e5m2 have no kernel: cuBLAS library, section "cublasLtMatmul()".
Multiply fp8_kernel_for(const Desc& desc, const Layout& a, const Layout& b, const Layout& d) {
  cudaDeviceProp gpu{};
  if (cudaGetDeviceProperties(&gpu, 0) != cudaSuccess || gpu.major * 10 + gpu.minor < 89) return nullptr;
  const bool tn = desc.transpose_a == CUBLAS_OP_T && desc.transpose_b == CUBLAS_OP_N;
  const bool whole = (a.rows | a.columns | a.leading | b.rows | b.columns | b.leading | d.rows) % 16 == 0;
  const bool wide_bias = d.type == CUDA_R_32F && desc.has_bias();  // its bias would be bf16, which the loop does not read
  if (!tn || !whole || wide_bias || desc.has_aux()) return nullptr;
  if (desc.compute != CUBLAS_COMPUTE_32F || desc.scale != CUDA_R_32F) return nullptr;
  if (d.type == CUDA_R_16BF) {
    if (a.type == CUDA_R_8F_E4M3)
      return b.type == CUDA_R_8F_E4M3 ? multiply_two<E4m3, E4m3, Bf16, float> : multiply_two<E4m3, E5m2, Bf16, float>;
    if (b.type == CUDA_R_8F_E4M3) return multiply_two<E5m2, E4m3, Bf16, float>;
  } else if (d.type == CUDA_R_32F) {
    if (a.type == CUDA_R_8F_E4M3)
      return b.type == CUDA_R_8F_E4M3 ? multiply_two<E4m3, E4m3, float, float> : multiply_two<E4m3, E5m2, float, float>;
    if (b.type == CUDA_R_8F_E4M3) return multiply_two<E5m2, E4m3, float, float>;
  }
  return nullptr;
}

// Returns the loop for a combination of types, or null if the library does not support it: cuBLAS
// library, table "cublasLtMatmul() supported data types". In that table a bias has the type of D.
Multiply kernel_for(const Desc& desc, const Layout& a, const Layout& b, const Layout& d) {
  const bool in_f64 = desc.compute == CUBLAS_COMPUTE_64F && desc.scale == CUDA_R_64F;
  const bool in_f32 = desc.compute == CUBLAS_COMPUTE_32F && desc.scale == CUDA_R_32F;
  if (is_fp8(a) && is_fp8(b)) return fp8_kernel_for(desc, a, b, d);
  if (a.type != b.type || (desc.has_aux() && d.type != CUDA_R_16BF && d.type != CUDA_R_16F)) return nullptr;
  const bool in_tf32 = desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && desc.scale == CUDA_R_32F;
  if (in_tf32 && a.type == CUDA_R_32F && d.type == CUDA_R_32F) return multiply<float, float, float, true>;
  if (in_f64 && a.type == CUDA_R_64F && d.type == CUDA_R_64F) return multiply<double, double, double>;
  if (in_f32 && a.type == CUDA_R_32F && d.type == CUDA_R_32F) return multiply<float, float, float>;
  if (in_f32 && a.type == CUDA_R_16BF && d.type == CUDA_R_32F) return multiply<Bf16, float, float>;
  if (in_f32 && a.type == CUDA_R_16BF && d.type == CUDA_R_16BF) return multiply<Bf16, Bf16, float>;
  if (in_f32 && a.type == CUDA_R_16F && d.type == CUDA_R_32F) return multiply<F16, float, float>;
  if (in_f32 && a.type == CUDA_R_16F && d.type == CUDA_R_16F) return multiply<F16, F16, float>;
  return nullptr;
}

std::uint64_t inner_of(const Desc& desc, const Layout& a) { return desc.transpose_a ? a.rows : a.columns; }

bool is_aligned(const void* at, std::uint64_t bytes) { return reinterpret_cast<std::uint64_t>(at) % bytes == 0; }
bool is_aligned(std::uint64_t at, std::uint64_t bytes) { return at % bytes == 0; }

bool fits(const Desc& desc, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
  const bool leading = a.leading >= a.rows && b.leading >= b.rows && c.leading >= c.rows && d.leading >= d.rows;
  const bool extents = (desc.transpose_a ? a.columns : a.rows) == d.rows && (desc.transpose_b ? b.rows : b.columns) == d.columns &&
                       inner_of(desc, a) == (desc.transpose_b ? b.columns : b.rows) && c.rows == d.rows && c.columns == d.columns;
  // For the auxiliary tensor's leading dimension, cublasLt.h demands: "Must be
  // divisible by 8 and be no less than the number of rows in the output matrix".
  const bool aux = !desc.has_aux() || (desc.aux_leading % 8 == 0 && desc.aux_leading >= d.rows && is_aligned(desc.aux, 16));
  return leading && extents && aux && desc.has_aux() == (desc.aux != 0) && c.type == d.type && d.rows > 0 && d.columns > 0 &&
         inner_of(desc, a) > 0;
}

// Returns the alignment of the bias pointer, since cublasLt.h says: "Routines that don't dereference this
// pointer, like cublasLtMatmulAlgoGetHeuristic() depend on its value to determine expected pointer alignment".
std::uint64_t bias_alignment(const Desc& desc) { return desc.bias == 0 ? 256 : std::min<std::uint64_t>(256, desc.bias & -desc.bias); }

Algo best_algo(const Desc& desc, const Layout& a, const Layout& d, const Preference& wish) {
  Algo algo{d.rows, d.columns, inner_of(desc, a), CUBLASLT_REDUCTION_SCHEME_NONE, 0, {}};
  const std::uint64_t sums = d.rows * d.columns * (desc.scale == CUDA_R_64F ? 8 : 4);
  const auto may = [&](cublasLtReductionScheme_t scheme) { return (wish.schemes & scheme) != 0; };
  // A long product of aligned matrices is summed in two parts. cuBLASLt also chooses kernels by alignment.
  if (algo.k >= 64 && wish.alignment[0] >= 16 && wish.alignment[1] >= 16) {
    if (may(CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)) {
      algo.scheme = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    } else if (may(CUBLASLT_REDUCTION_SCHEME_INPLACE)) {
      algo.scheme = CUBLASLT_REDUCTION_SCHEME_INPLACE;
    } else if (may(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) && sums <= wish.workspace_bytes) {
      algo.scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, algo.workspace_bytes = sums;
    }
  }
  algo.alignment[0] = wish.alignment[0], algo.alignment[1] = wish.alignment[1];
  algo.alignment[2] = std::min({wish.alignment[2], wish.alignment[3], bias_alignment(desc)});
  return algo;
}

// Returns whether the library should refuse a product. SPILLWAY_EMULATED_BLAS names what it refuses:
// bias, epilogue (gelu), workspace, all, or some (one request in four, chosen by its parameters).
bool refuses(const Desc& desc, const Layout& a, const Layout& d, const Preference& wish) {
  const char* text = std::getenv("SPILLWAY_EMULATED_BLAS");
  const std::string_view what = text ? text : "";
  const bool bias = desc.has_bias(), workspace = wish.workspace_bytes > 0;
  std::uint64_t hash = 1;
  for (const std::uint64_t part : {d.rows, d.columns, inner_of(desc, a), a.type, d.type, desc.transpose_a, desc.transpose_b,
                                   std::uint64_t{bias}, std::uint64_t{workspace}})
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u, hash ^= hash >> 29;
  return what == "all" || (what == "bias" && bias) || (what == "epilogue" && desc.has_aux()) || (what == "workspace" && workspace) ||
         (what == "some" && hash % 4 == 0);
}

// Describes a product in a line for the log: "product m n k: epilogue, beta, alignment of A, B and D, leading dimensions".
std::string described(const Product& p) {
  std::string text = "product";
  const std::uint64_t beta = p.beta != 0;
  for (const std::uint64_t number : {p.algo.m, p.algo.n, p.algo.k, p.desc.epilogue, beta, p.algo.alignment[0], p.algo.alignment[1],
                                     p.algo.alignment[2], p.a.leading, p.b.leading, p.d.leading})
    text += " " + std::to_string(number);
  return text;
}

cublasStatus_t blas(cudaError_t status) { return status == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED; }

// Sets an attribute of `size` bytes, which is stored in `target`, to `value`.
cublasStatus_t set(std::uint64_t& target, size_t size, const void* value, size_t bytes) {
  if (!value || bytes != size) return CUBLAS_STATUS_INVALID_VALUE;
  target = 0;
  std::memcpy(&target, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace
}  // namespace emulated_cuda

using namespace emulated_cuda;

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "unrecognized error code";
  }
}
const char* cublasLtGetStatusString(cublasStatus_t) { return "emulated"; }

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  int gpus = 0;
  if (planted("cublasLtCreate") != cudaSuccess || cudaGetDeviceCount(&gpus) != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) {
  *desc = new cublasLtMatmulDescOpaque_t{};
  seen(*desc) = {static_cast<std::uint64_t>(compute),
                 static_cast<std::uint64_t>(scale),
                 CUBLAS_OP_N,
                 CUBLAS_OP_N,
                 CUBLASLT_EPILOGUE_DEFAULT,
                 0,
                 0,
                 0,
                 0,
                 0,
                 {}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void* value,
                                              size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return set(seen(desc).transpose_a, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return set(seen(desc).transpose_b, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return set(seen(desc).epilogue, 4, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return set(seen(desc).bias, 8, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return set(seen(desc).aux, 8, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return set(seen(desc).aux_leading, 8, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return set(seen(desc).scale_a, 8, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return set(seen(desc).scale_b, 8, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type, std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  *layout = new cublasLtMatrixLayoutOpaque_t{{static_cast<std::uint64_t>(type), rows, columns, static_cast<std::uint64_t>(leading)}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t{};
  seen(*preference) = {0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}, {}};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return set(seen(preference).workspace_bytes, 8, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return set(seen(preference).schemes, 4, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return set(seen(preference).alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], 4, value, bytes);
    default:
      return CUBLAS_STATUS_INVALID_VALUE;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                                              cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int* returned) {
  *returned = 0;
  if (planted("cublasLtMatmulAlgoGetHeuristic") != cudaSuccess) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  if (requested < 1 || !fits(seen(desc), seen(a), seen(b), seen(c), seen(d))) return CUBLAS_STATUS_INVALID_VALUE;
  if (!kernel_for(seen(desc), seen(a), seen(b), seen(d))) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (refuses(seen(desc), seen(a), seen(d), seen(preference))) return CUBLAS_STATUS_NOT_SUPPORTED;
  const Algo algo = best_algo(seen(desc), seen(a), seen(d), seen(preference));
  results[0] = {std::bit_cast<cublasLtMatmulAlgo_t>(algo), algo.workspace_bytes, CUBLAS_STATUS_SUCCESS, 1, {}};
  *returned = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a_data,
                              cublasLtMatrixLayout_t a, const void* b_data, cublasLtMatrixLayout_t b, const void* beta, const void* c_data,
                              cublasLtMatrixLayout_t c, void* d_data, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algo,
                              void* workspace, size_t workspace_bytes, cudaStream_t stream) {
  if (!handle) return CUBLAS_STATUS_NOT_INITIALIZED;
  const auto scalar = [&](const void* at) {
    return seen(desc).scale == CUDA_R_64F ? *static_cast<const double*>(at) : static_cast<double>(*static_cast<const float*>(at));
  };
  const Product product{seen(desc), seen(a), seen(b), seen(c),   seen(d),       seen(algo),  a_data,
                        b_data,     c_data,  d_data,  workspace, scalar(alpha), scalar(beta)};
  const Algo& chosen = product.algo;
  const bool same = chosen.m == product.d.rows && chosen.n == product.d.columns && chosen.k == inner_of(product.desc, product.a);
  const bool aligned = is_aligned(a_data, chosen.alignment[0]) && is_aligned(b_data, chosen.alignment[1]) &&
                       is_aligned(c_data, chosen.alignment[2]) && is_aligned(d_data, chosen.alignment[2]) &&
                       bias_alignment(product.desc) >= chosen.alignment[2] && is_aligned(workspace, 256);
  const bool biased = product.desc.has_bias();
  const bool in_place = c_data != d_data || product.c.leading == product.d.leading;
  if (!same || !aligned || !in_place || biased != (product.desc.bias != 0) || workspace_bytes < chosen.workspace_bytes ||
      !fits(product.desc, product.a, product.b, product.c, product.d))
    return CUBLAS_STATUS_INVALID_VALUE;
  const Multiply multiply = kernel_for(product.desc, product.a, product.b, product.d);
  if (!multiply) return CUBLAS_STATUS_NOT_SUPPORTED;
  note(described(product));
  return blas(enqueue(
      stream, "cublasLtMatmul", [multiply, product] { multiply(product); }, cost_of_product(chosen.m, chosen.n, chosen.k)));
}

#include "kernels/products/blas_lt_cuda.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

// Lists the functions in struct BlasLt, each with its name in cuBLASLt.
#define SPILLWAY_BLAS_LT(each)                                \
  each(status_name, cublasLtGetStatusName);                   \
  each(status_string, cublasLtGetStatusString);               \
  each(create, cublasLtCreate);                               \
  each(desc_create, cublasLtMatmulDescCreate);                \
  each(desc_destroy, cublasLtMatmulDescDestroy);              \
  each(desc_set, cublasLtMatmulDescSetAttribute);             \
  each(layout_create, cublasLtMatrixLayoutCreate);            \
  each(layout_destroy, cublasLtMatrixLayoutDestroy);          \
  each(preference_create, cublasLtMatmulPreferenceCreate);    \
  each(preference_destroy, cublasLtMatmulPreferenceDestroy);  \
  each(preference_set, cublasLtMatmulPreferenceSetAttribute); \
  each(heuristic, cublasLtMatmulAlgoGetHeuristic);            \
  each(matmul, cublasLtMatmul)

namespace spillway::kernels {
namespace {

constexpr const char* kCure =
    "install cuBLAS 13 or 12 (it comes with the CUDA toolkit; on a cluster: module load cuda) and add its folder to LD_LIBRARY_PATH";

template <class Function>
void find(const SharedLibrary& library, const char* name, Function*& found) {
  found = reinterpret_cast<Function*>(library.find(name));
  if (!found) throw Error(ErrorCode::usage, fmt::format("[matmul] expected {} in {}, got none: {}", name, library.name(), kCure));
}

BlasLt open() {
#ifdef CUBLASLT_EMULATED
  BlasLt linked;
#define SPILLWAY_TAKE(member, function) linked.member = &(function)
  SPILLWAY_BLAS_LT(SPILLWAY_TAKE);
#undef SPILLWAY_TAKE
  return linked;
#else
  // The version that this program was built against is tried first. The
  // loader may not know the toolkit's folder, so that folder is tried too.
  const std::string folder = "/usr/local/cuda/lib64/", name = "libcublasLt.so.";
  const std::string first = name + std::to_string(CUBLAS_VER_MAJOR), second = name + (CUBLAS_VER_MAJOR == 13 ? "12" : "13");
  return open_blas_lt({first, folder + first, second, folder + second});
#endif
}

}  // namespace

BlasLt open_blas_lt(const std::vector<std::string>& names) {
  BlasLt opened;
  opened.library = SharedLibrary(names);
  if (!opened.library) {
    throw Error(ErrorCode::usage, fmt::format("[matmul] expected cuBLASLt for matrix products on the GPU, got none ({}): {}",
                                              fmt::join(opened.library.problems(), "; "), kCure));
  }
#define SPILLWAY_FIND(member, function) find(opened.library, #function, opened.member)
  SPILLWAY_BLAS_LT(SPILLWAY_FIND);
#undef SPILLWAY_FIND
  return opened;
}

const BlasLt& blas_lt() {
  // the library is never closed, because the GPU may still run its kernels when the process ends
  static const BlasLt& one = *new BlasLt(open());
  return one;
}

void blas_lt_check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::io, fmt::format("[cuda] expected {} to succeed, got {} ({}): {}", call, blas_lt().status_name(status),
                                         static_cast<int>(status), blas_lt().status_string(status)));
}

}  // namespace spillway::kernels

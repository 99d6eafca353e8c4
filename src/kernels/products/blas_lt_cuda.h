// cuBLASLt, NVIDIA's matrix product library, opened at run time. Building needs <cublasLt.h>; the library itself is needed only where a GPU
// multiplies matrices. Included only by kernels/*/*_cuda.*. Thread-safe.
#pragma once
#include <cublasLt.h>

#include <memory>
#include <string>
#include <vector>

#include "device/shared_library.h"

namespace spillway::kernels {

/// The functions of cuBLASLt that this program uses, named as in cublasLt.h.
struct BlasLt {
  SharedLibrary library;  // the library that the functions come from; empty in a build that is linked with them
  decltype(&cublasLtGetStatusName) status_name = nullptr;
  decltype(&cublasLtGetStatusString) status_string = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
  decltype(&cublasLtMatmul) matmul = nullptr;
};

/// Returns cuBLASLt, which is searched for once and never closed. If it is not found, throws Error(usage) with one line that also says what
/// to do; the next call searches again.
const BlasLt& blas_lt();
/// Opens the first library of `names` that exists. Throws Error(usage) if none does, as blas_lt() does.
BlasLt open_blas_lt(const std::vector<std::string>& names);

/// Throws an Error(io) that names `call`, unless `status` is CUBLAS_STATUS_SUCCESS.
void blas_lt_check(cublasStatus_t status, const char* call);

struct BlasLtDestroy {
  void operator()(cublasLtMatmulDescOpaque_t* desc) const { static_cast<void>(blas_lt().desc_destroy(desc)); }
  void operator()(cublasLtMatrixLayoutOpaque_t* layout) const { static_cast<void>(blas_lt().layout_destroy(layout)); }
  void operator()(cublasLtMatmulPreferenceOpaque_t* preference) const { static_cast<void>(blas_lt().preference_destroy(preference)); }
};
using BlasLtDesc = std::unique_ptr<cublasLtMatmulDescOpaque_t, BlasLtDestroy>;
using BlasLtLayout = std::unique_ptr<cublasLtMatrixLayoutOpaque_t, BlasLtDestroy>;
using BlasLtPreference = std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, BlasLtDestroy>;

}  // namespace spillway::kernels

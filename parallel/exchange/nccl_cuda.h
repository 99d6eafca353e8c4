// Loads NCCL, NVIDIA's library for communication between GPUs, at run time. <nccl.h> is needed to build the code that uses NCCL. The
// library itself is needed only where GPUs exchange data directly. Included only by parallel/*_cuda.*. Thread-safe.
#pragma once
#if __has_include(<nccl.h>)
#define SPILLWAY_HAS_NCCL 1
#include <nccl.h>

#include <string>
#include <vector>

#include "device/shared_library.h"

namespace spillway::parallel {

/// Holds the NCCL functions that are used. Each member is named after its function in nccl.h.
struct Nccl {
  SharedLibrary library;  // the library that holds the functions; empty in a build that is linked with NCCL
  decltype(&ncclGetVersion) version = nullptr;
  decltype(&ncclGetUniqueId) unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclAllGather) all_gather = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
};

/// Returns the NCCL functions. The library is loaded once and never closed. If the library is missing, throws Error(usage), which says in
/// one line what to install; the next call tries again.
const Nccl& nccl();
/// Loads the first of these libraries that can be opened. Throws Error(usage) like nccl().
Nccl open_nccl(const std::vector<std::string>& names);

}  // namespace spillway::parallel
#endif

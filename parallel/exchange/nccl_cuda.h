// NCCL, NVIDIA's communication between GPUs, opened at run time: <nccl.h> is needed to build what uses it, the library only where GPUs talk
// to each other. Included by parallel/*_cuda.* alone. Thread-safe.
#pragma once
#if __has_include(<nccl.h>)
#define SPILLWAY_HAS_NCCL 1
#include <nccl.h>

#include <string>
#include <vector>

#include "device/shared_library.h"

namespace spillway::parallel {

/// The functions in use, under the names of nccl.h.
struct Nccl {
  SharedLibrary library;  // in which they lie; none in a build that has them in itself
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

/// Looked for once, never closed. Error(usage) in one line with the cure where there is none; the next call looks again.
const Nccl& nccl();
/// From the first of these libraries. Error(usage) as above.
Nccl open_nccl(const std::vector<std::string>& names);

}  // namespace spillway::parallel
#endif

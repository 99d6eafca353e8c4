#include "parallel/exchange/nccl_cuda.h"

#ifdef SPILLWAY_HAS_NCCL
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

// Calls `each` for every member of Nccl, with the member's name and the name of the NCCL function to which it points.
#define SPILLWAY_NCCL(each)                 \
  each(version, ncclGetVersion);            \
  each(unique_id, ncclGetUniqueId);         \
  each(init, ncclCommInitRankConfig);       \
  each(finalize, ncclCommFinalize);         \
  each(destroy, ncclCommDestroy);           \
  each(abort, ncclCommAbort);               \
  each(async_error, ncclCommGetAsyncError); \
  each(error_string, ncclGetErrorString);   \
  each(last_error, ncclGetLastError);       \
  each(send, ncclSend);                     \
  each(receive, ncclRecv);                  \
  each(all_gather, ncclAllGather);          \
  each(group_start, ncclGroupStart);        \
  each(group_end, ncclGroupEnd)

namespace spillway::parallel {
namespace {

constexpr const char* kCure = "install NCCL 2.18 or newer (libnccl2; on a cluster: module load nccl) and add its folder to LD_LIBRARY_PATH";

template <class Function>
void find(const SharedLibrary& library, const char* name, Function*& found) {
  found = reinterpret_cast<Function*>(library.find(name));
  if (!found)
    throw Error(ErrorCode::usage,
                fmt::format("[nccl] expected the function {} in {}, which does not have it: {}", name, library.name(), kCure));
}

Nccl open() {
#ifdef NCCL_EMULATED
  Nccl linked;
#define SPILLWAY_TAKE(member, function) linked.member = &(function)
  SPILLWAY_NCCL(SPILLWAY_TAKE);
#undef SPILLWAY_TAKE
  return linked;
#else
  // The second name, in the CUDA toolkit's folder, serves machines where the loader does not search that folder.
  return open_nccl({"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"});
#endif
}

}  // namespace

Nccl open_nccl(const std::vector<std::string>& names) {
  Nccl opened;
  opened.library = SharedLibrary(names);
  if (!opened.library) {
    throw Error(ErrorCode::usage,
                fmt::format("[nccl] expected the NCCL library for communication between GPUs, but it cannot be loaded ({}): {}",
                            fmt::join(opened.library.problems(), "; "), kCure));
  }
#define SPILLWAY_FIND(member, function) find(opened.library, #function, opened.member)
  SPILLWAY_NCCL(SPILLWAY_FIND);
#undef SPILLWAY_FIND
  return opened;
}

const Nccl& nccl() {
  static const Nccl& one = *new Nccl(open());  // the library is never closed, because its threads may still run when the process ends
  return one;
}

}  // namespace spillway::parallel
#endif

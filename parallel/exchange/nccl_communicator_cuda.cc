#include "parallel/exchange/nccl_communicator_cuda.h"

#ifdef SPILLWAY_HAS_NCCL
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "base/units.h"
#include "device/cuda_handle.h"
#include "device/memory_pool.h"

namespace spillway::parallel {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kLongestEnd_s = 5;
constexpr int kSpins = 2000;
// the most thread blocks for one communicator; more gain little over NVLink, and nothing over PCIe or a network
constexpr int kMostBlocks = 16;

ErrorCode code_of(ncclResult_t result) {
  switch (result) {
    case ncclRemoteError:
      return ErrorCode::peer;
    case ncclInvalidArgument:
      return ErrorCode::bug;
    default:
      return ErrorCode::io;  // errors of usage also give ErrorCode::io: they mean two ranks on one GPU, or different versions of NCCL
  }
}

double seconds_since(Clock::time_point since) { return std::chrono::duration<double>(Clock::now() - since).count(); }

// Returns the largest number of thread blocks that NCCL may use for one communicator. These blocks occupy multiprocessors while they
// wait for other ranks. The blocks of all communicators together must fit on the GPU and leave most of it to computing.
int most_blocks(Device gpu) {
  int processors = 0;
  cuda_check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu.index), "cudaDeviceGetAttribute");
  return std::clamp(processors / 2 / kNcclAtOnce, 1, kMostBlocks);
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

// Waits for a moment in a loop that polls. Most waits take only microseconds, so the first turns only yield, and later ones sleep.
void rest(int turn) { turn < kSpins ? std::this_thread::yield() : std::this_thread::sleep_for(std::chrono::microseconds(50)); }

}  // namespace

ncclUniqueId make_nccl_id() {
  ncclUniqueId id;
  if (const ncclResult_t result = nccl().unique_id(&id); result != ncclSuccess)
    throw Error(ErrorCode::io, fmt::format("[nccl] expected ncclGetUniqueId to succeed, got {}", nccl().error_string(result)));
  return id;
}

NcclCommunicator::NcclCommunicator(const ncclUniqueId& id, Place place, const Event& others) : place_(std::move(place)) {
  use_device(place_.gpu);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.maxCTAs = most_blocks(place_.gpu);
  try {
    check(nccl().init(&comm_, place_.ranks, id, place_.rank, &config), "ncclCommInitRankConfig");
    poll("rendezvous", others, [&] { return is_done("ncclCommInitRankConfig"); });
  } catch (...) {
    give_up(text_of(std::current_exception()));
    if (aborting_.joinable()) aborting_.join();
    throw;
  }
}

// ncclCommFinalize is done when all members have called it. The wait for the other members
// has a limit, so that a member that is gone does not block this destructor.
NcclCommunicator::~NcclCommunicator() {
  end();
  if (aborting_.joinable()) aborting_.join();
}

void NcclCommunicator::end() noexcept {
  if (!comm_) return;
  try {
    use_device(place_.gpu);
    check(nccl().finalize(comm_), "ncclCommFinalize");
    const auto since = Clock::now();
    bool done = is_done("ncclCommFinalize");
    for (int turn = 0; !done && seconds_since(since) < std::min(kLongestEnd_s, place_.timeout_s); done = is_done("ncclCommFinalize"))
      rest(turn++);
    if (done) static_cast<void>(nccl().destroy(std::exchange(comm_, nullptr)));
    give_up("the other ranks did not finalize their communicator in time");
  } catch (...) {  // errors are not reported, because the communicator is not needed any more
    give_up(text_of(std::current_exception()));
  }
}

// Starts two threads. One calls ncclCommAbort, which may never return, so this thread is never joined. The other watches whether the call
// returns.
void NcclCommunicator::give_up(const std::string& why) noexcept {
  const std::lock_guard lock(calling_);
  ncclComm_t comm = std::exchange(comm_, nullptr);
  if (!comm) return;
  const auto let_go = [comm, gpu = place_.gpu.index] {
    static_cast<void>(cudaSetDevice(gpu));
    static_cast<void>(nccl().abort(comm));
  };
  bool left = false;
  try {
    auto ended = std::make_shared<std::promise<void>>();
    start_thread([let_go, ended] {
      let_go();
      ended->set_value();
    }).detach();
    left = true;
    aborting_ = start_thread([why, end = ended->get_future(), place = place_] {
      if (end.wait_for(std::chrono::duration<double>(place.abort_s)) == std::future_status::ready || !place.stuck) return;
      place.stuck(
          fmt::format("[nccl] expected NCCL to abort the communicator of {} within {}, got no answer: {} still hangs in an operation; the "
                      "reason for the abort: {}",
                      place.members, format_duration(place.abort_s), to_string(place.gpu), why));
    });
  } catch (...) {  // no thread could be started, so the abort is made on this thread, unless the first thread has begun it
    if (!left) let_go();
  }
}

void NcclCommunicator::connect(const Links& links, const Event& others) {
  constexpr i64 kEach = 64 * kKiB;
  const i64 bytes = 2 * ranks() * kEach;
  use_device(place_.gpu);
  MemoryPool pool("device", bytes, "", gpu_memory(place_.gpu.index, bytes));
  const Allocation memory = pool.allocate(bytes, "first connections");
  const GpuQueue queue(place_.gpu);
  std::byte *out = memory.data(), *in = out + ranks() * kEach;
  group(
      [&](ncclComm_t comm) {
        for (const int r : links.to) check(nccl().send(out + r * kEach, kEach, ncclUint8, r, comm, queue.handle()), "ncclSend");
        for (const int r : links.from) check(nccl().receive(in + r * kEach, kEach, ncclUint8, r, comm, queue.handle()), "ncclRecv");
      },
      others);
  if (links.gather) {
    group(
        [&](ncclComm_t comm) {
          check(nccl().all_gather(in + rank() * kEach, in, kEach, ncclUint8, comm, queue.handle()), "ncclAllGather");
        },
        others);
  }
  wait(queue, "the first connections", others);
}

void NcclCommunicator::check(ncclResult_t result, const char* call) const {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* said = comm_ ? nccl().last_error(comm_) : nullptr;
  throw Error(code_of(result),
              fmt::format("[nccl] expected {} of {} to succeed, got {} ({}){}", call, place_.members, nccl().error_string(result),
                          static_cast<int>(result), said && *said ? fmt::format(": {}", said) : ""));
}

std::vector<int> NcclCommunicator::others_of_us() const {
  std::vector<int> ranks;
  for (int r = 0; r < place_.ranks; ++r) {
    if (r != place_.rank) ranks.push_back(r);
  }
  return ranks;
}

void NcclCommunicator::require_use() const {
  if (!comm_)
    throw Error(ErrorCode::peer, fmt::format("[nccl] {} cannot communicate any more, because one of them failed", place_.members));
}

bool NcclCommunicator::is_done(const char* call) const {
  const std::lock_guard lock(calling_);
  require_use();
  ncclResult_t state = ncclSuccess;
  check(nccl().async_error(comm_, &state), "ncclCommGetAsyncError");
  check(state, call);
  return state == ncclSuccess;
}

template <class Done>
void NcclCommunicator::poll(const std::string& what, const Event& others, Done&& done) const {
  const auto since = Clock::now();
  for (int turn = 0;; ++turn) {
    if (others.ready()) others.wait();  // the other ranks are checked first: driver calls in done() may wait for work that never ends
    if (done()) return;
    if (const double waited_s = seconds_since(since); waited_s > place_.timeout_s) {
      throw Error(ErrorCode::peer, fmt::format("[nccl] {} of {}: rank {} waited {} for ranks {}, but not all of these ranks arrived", what,
                                               place_.members, place_.rank, format_duration(waited_s), fmt::join(others_of_us(), ", ")));
    }
    rest(turn);
  }
}

void NcclCommunicator::group(const std::function<void(ncclComm_t)>& calls, const Event& others) {
  try {
    {
      const std::lock_guard lock(calling_);
      require_use();
      check(nccl().group_start(), "ncclGroupStart");
      std::exception_ptr failed;
      try {
        calls(comm_);
      } catch (...) {
        failed = std::current_exception();
      }
      const ncclResult_t ended = nccl().group_end();
      if (failed) std::rethrow_exception(failed);
      check(ended, "ncclGroupEnd");
    }
    poll("the start of an exchange", others, [&] { return is_done("ncclGroupEnd"); });
  } catch (...) {
    give_up(text_of(std::current_exception()));
    throw;
  }
}

void NcclCommunicator::wait(const GpuQueue& queue, const std::string& what, const Event& others) {
  try {
    poll(what, others, [&] {
      if (!is_done(what.c_str())) return false;
      const cudaError_t status = cudaStreamQuery(queue.handle());
      if (status == cudaErrorNotReady) return false;
      cuda_check(status, what.c_str());
      return true;
    });
  } catch (...) {
    give_up(text_of(std::current_exception()));
    throw;
  }
}

}  // namespace spillway::parallel
#endif

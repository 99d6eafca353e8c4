// An NcclCommunicator is one rank's end of an NCCL communicator in non-blocking mode. No wait in this class is endless: it either
// succeeds or ends with an Error. Used by one thread at a time, except check_work() and give_up(), which any thread may call.
#pragma once
#include "parallel/exchange/nccl_cuda.h"

#ifdef SPILLWAY_HAS_NCCL
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "device/event.h"
#include "device/gpu_queue.h"
#include "parallel/program/meetings.h"

namespace spillway::parallel {

/// Returns an id for a communicator that is about to be made. One member calls this and gives the id to the others. Throws Error(io).
ncclUniqueId make_nccl_id();

/// The number of communicators that may have an exchange in progress on one GPU at the same time.
constexpr int kNcclAtOnce = static_cast<int>(kExchangeLanes.size());

/// A function of this type is called, with the reason, if NCCL cannot release a GPU. It
/// should end the process, because anything that waits for this GPU waits forever.
using NcclStuck = std::function<void(const std::string& why)>;
/// The largest number of seconds that ncclCommAbort may take.
constexpr double kNcclAbort_s = 15;

class NcclCommunicator {
 public:
  struct Place {
    int rank = 0, ranks = 1;
    Device gpu;
    double timeout_s = 60;
    std::string members;  // the name of the members for error messages, such as "data-parallel ranks"
    double abort_s = kNcclAbort_s;
    NcclStuck stuck;  // called if NCCL does not release the GPU; if it is empty, the GPU is left as it is
  };
  /// Connects to all members; throws Error(peer) if that takes longer than the time-out. `id` must be used by these members only. Selects
  /// the GPU for the calling thread. `others`, here and in the functions below, is an event about the other members: it becomes ready when
  /// they have done their part, and fails if one of them cannot go on.
  NcclCommunicator(const ncclUniqueId& id, Place place, const Event& others = {});
  /// Waits a moment until the destructors of the other members have begun too; after that the members do not need each other. If this
  /// communicator was given up, waits until the GPU is released, but not longer than abort_s.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }

  /// Names the members to which this rank sends, those from which it receives, and whether all members use all-gather.
  struct Links {
    std::vector<int> to, from;
    bool gather = false;
  };
  Links all_links() const { return {others_of_us(), others_of_us(), true}; }
  /// Sends a few bytes over each link. NCCL makes a connection when it is first used, and then allocates memory for it (up to tens of
  /// MiB). connect() makes the connections before the first step. It is a collective of all members, whose links must match.
  void connect(const Links& links, const Event& others);
  /// Puts either sends and receives that may run concurrently, or one collective, on a queue. When group() returns, they are on the queue.
  void group(const std::function<void(ncclComm_t)>& calls, const Event& others = {});
  /// Waits until all work on the queue is done. If group() or wait() fails, the communicator is aborted, which also ends its work on the
  /// queue.
  void wait(const GpuQueue& queue, const std::string& what, const Event& others);
  /// Throws an Error unless `result`, which NCCL returned for `call`, says that the call has succeeded or is in progress. Used within
  /// group().
  void check(ncclResult_t result, const char* call) const;
  /// Throws an Error if NCCL reports that work on a queue has failed. `what` names that work in the message.
  void check_work(const std::string& what) const { static_cast<void>(is_done(what.c_str())); }
  /// Aborts the communicator on a separate thread, because NCCL may wait for everything that the GPU has begun. This
  /// includes exchanges of other communicators on the same GPU, so those communicators must be given up too.
  void give_up(const std::string& why) noexcept;

 private:
  std::vector<int> others_of_us() const;
  void require_use() const;
  bool is_done(const char* call) const;
  void end() noexcept;
  template <class Done>
  void poll(const std::string& what, const Event& others, Done&& done) const;

  const Place place_;
  mutable std::mutex calling_;  // guards the calls of NCCL for this communicator
  ncclComm_t comm_ = nullptr;   // NCCL's communicator; null once this object has given it up
  std::thread aborting_;
};

}  // namespace spillway::parallel
#endif

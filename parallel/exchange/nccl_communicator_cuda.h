// One rank's end of an NCCL communicator in non-blocking mode: every wait here ends, with an Error if not otherwise. Used by one thread at
// a time, except check_work() and give_up(), which any thread may call.
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

/// Returns the id of a communicator to be made; one member makes it and gives it to the others. Throws Error(io).
ncclUniqueId make_nccl_id();

/// The number of communicators that may have an exchange in progress on a GPU at once.
constexpr int kNcclAtOnce = static_cast<int>(kExchangeLanes.size());

/// Called if NCCL cannot release a GPU, with the reason. It should end the process, because anything that waits for that GPU waits forever.
using NcclStuck = std::function<void(const std::string& why)>;
/// The longest time that ncclCommAbort may take.
constexpr double kNcclAbort_s = 15;

class NcclCommunicator {
 public:
  struct Place {
    int rank = 0, ranks = 1;
    Device gpu;
    double timeout_s = 60;
    std::string members;  // name of the members in errors, such as "data-parallel ranks"
    double abort_s = kNcclAbort_s;
    NcclStuck stuck;  // may be empty: the GPU is then left as it is
  };
  /// Connects to all members, and throws Error(peer) if that takes longer than the time-out. `id` must be unique to these members. Selects
  /// the GPU for the calling thread. `others`, here and below, is an event that becomes ready when something is known of the other members,
  /// and fails if one of them cannot go on.
  NcclCommunicator(const ncclUniqueId& id, Place place, const Event& others = {});
  /// Waits a moment until the other members have called it too; they are not needed afterwards. If the communicator was given up, waits
  /// until the GPU is released, or for abort_s.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }

  /// The members to which this one sends and from which it receives, and whether all members use all-gather.
  struct Links {
    std::vector<int> to, from;
    bool gather = false;
  };
  Links all_links() const { return {others_of_us(), others_of_us(), true}; }
  /// Sends a few bytes over each link. NCCL makes a connection, and allocates its memory (up to tens of MiB each), when it is first used;
  /// this call keeps that out of the first step. A collective of all members, with links that match.
  void connect(const Links& links, const Event& others);
  /// Puts sends and receives that may run concurrently, or one collective, on a queue. They are on it when this returns.
  void group(const std::function<void(ncclComm_t)>& calls, const Event& others = {});
  /// Waits until all work on the queue is done. After an error of group() or wait() the communicator is aborted, and its work on the queue
  /// ends.
  void wait(const GpuQueue& queue, const std::string& what, const Event& others);
  /// Throws unless NCCL reports that this call has succeeded or is in progress. Used within group().
  void check(ncclResult_t result, const char* call) const;
  /// Throws an error that NCCL reports for queued work. `what` names that work.
  void check_work(const std::string& what) const { static_cast<void>(is_done(what.c_str())); }
  /// Aborts the communicator on a thread of its own, because NCCL may wait for everything that the GPU has begun. That includes exchanges
  /// of other communicators, which must then be given up too.
  void give_up(const std::string& why) noexcept;

 private:
  std::vector<int> others_of_us() const;
  void require_use() const;
  bool is_done(const char* call) const;
  void end() noexcept;
  template <class Done>
  void poll(const std::string& what, const Event& others, Done&& done) const;

  const Place place_;
  mutable std::mutex calling_;  // guards NCCL calls for this communicator
  ncclComm_t comm_ = nullptr;   // null once the communicator is given up
  std::thread aborting_;
};

}  // namespace spillway::parallel
#endif

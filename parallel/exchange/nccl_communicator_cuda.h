// One rank's end of an NCCL communicator whose calls do not block: whatever is waited for here ends, with an Error if not otherwise. One
// thread at a time but for check_work() and give_up(), which any thread may call beside it.
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

/// Of a communicator to be, for one of its members to give to the others. Error(io).
ncclUniqueId make_nccl_id();

/// Of how many communicators a GPU may have an exchange under way at once.
constexpr int kNcclAtOnce = static_cast<int>(kExchangeLanes.size());

/// What happens when NCCL cannot let go of a GPU: it is told why, and should end the process, for whoever waits for that GPU waits for
/// ever.
using NcclStuck = std::function<void(const std::string& why)>;
/// For which ncclCommAbort may take.
constexpr double kNcclAbort_s = 15;

class NcclCommunicator {
 public:
  struct Place {
    int rank = 0, ranks = 1;
    Device gpu;
    double timeout_s = 60;
    std::string members;  // as errors call them: "data-parallel ranks"
    double abort_s = kNcclAbort_s;
    NcclStuck stuck;  // may be none: then the GPU is left as it is
  };
  /// Waits for all members, for no longer than the time-out: then Error(peer). `id` is theirs alone. Makes the GPU the calling thread's.
  /// `others`, here and below: is not ready while nothing is known of the other members, and fails when one cannot go on.
  NcclCommunicator(const ncclUniqueId& id, Place place, const Event& others = {});
  /// Waits until the members are here too, for a moment; they are not needed any more. Given up, until the GPU has let go, or for abort_s.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }

  /// Members to which this one sends and from which it receives, and whether all of them gather.
  struct Links {
    std::vector<int> to, from;
    bool gather = false;
  };
  Links all_links() const { return {others_of_us(), others_of_us(), true}; }
  /// A few bytes over each of them. NCCL makes its connections, and takes their memory (up to tens of MiB each), when it is first asked for
  /// them: so that this is not in the midst of a step. All members call it, with links that fit.
  void connect(const Links& links, const Event& others);
  /// Sends and receives that may run side by side, or one collective; on the queue when it returns.
  void group(const std::function<void(ncclComm_t)>& calls, const Event& others = {});
  /// Until all on the queue is done. After any error of these two the communicator is aborted: what it had on the queue ends.
  void wait(const GpuQueue& queue, const std::string& what, const Event& others);
  /// Throws unless NCCL says that this call is done or begun. Within group().
  void check(ncclResult_t result, const char* call) const;
  /// Throws what NCCL has to say of what is on queues. `what`: that.
  void check_work(const std::string& what) const { static_cast<void>(is_done(what.c_str())); }
  /// On a thread of its own: NCCL may wait for all that the GPU has begun, also for other communicators', which others must then give up.
  void give_up(const std::string& why) noexcept;

 private:
  std::vector<int> others_of_us() const;
  void require_use() const;
  bool is_done(const char* call) const;
  void end() noexcept;
  template <class Done>
  void poll(const std::string& what, const Event& others, Done&& done) const;

  const Place place_;
  mutable std::mutex calling_;  // NCCL for this communicator
  ncclComm_t comm_ = nullptr;   // none once it is given up
  std::thread aborting_;
};

}  // namespace spillway::parallel
#endif

// One rank's end of an NCCL communicator whose calls do not block: whatever is waited for here ends, with an Error if not otherwise. One
// thread at a time.
#pragma once
#include "parallel/exchange/nccl_cuda.h"

#ifdef SPILLWAY_HAS_NCCL
#include <functional>
#include <thread>

#include "device/event.h"
#include "device/gpu_queue.h"

namespace spillway::parallel {

/// Of a communicator to be, for one of its members to give to the others. Error(io).
ncclUniqueId make_nccl_id();

class NcclCommunicator {
 public:
  struct Place {
    int rank = 0, ranks = 1;
    Device gpu;
    double timeout_s = 60;
    std::string members;  // as errors call them: "data-parallel ranks"
  };
  /// Waits for all members, for no longer than the time-out: then Error(peer). `id` is theirs alone. Makes the GPU the calling thread's.
  /// `others`, here and below: is not ready while nothing is known of the other members, and fails when one cannot go on.
  NcclCommunicator(const ncclUniqueId& id, Place place, const Event& others = {});
  /// Waits until the members are here too, for a moment; they are not needed any more. Given up, until the GPU has let go.
  ~NcclCommunicator();
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  int rank() const { return place_.rank; }
  int ranks() const { return place_.ranks; }

  /// A few bytes between every two members, or with `one_way` from the first to the second of two. NCCL makes its connections, and takes
  /// their memory (hundreds of MiB), when it is first asked for them: so that this is not in the midst of a step. All members call it.
  void connect(bool one_way, const Event& others);
  /// Sends and receives that may run side by side, or one collective; on the queue when it returns.
  void group(const std::function<void(ncclComm_t)>& calls, const Event& others);
  /// Until all on the queue is done. After any error of these two the communicator is aborted: what it had on the queue ends.
  void wait(const GpuQueue& queue, const std::string& what, const Event& others);
  /// Throws unless NCCL says that this call is done or begun.
  void check(ncclResult_t result, const char* call) const;
  /// On a thread of its own: NCCL may wait for all that the GPU has begun, also for other communicators', which others must then give up.
  void give_up() noexcept;

 private:
  bool is_done(const char* call) const;
  void end() noexcept;
  template <class Done>
  void poll(const std::string& what, const Event& others, Done&& done);

  const Place place_;
  ncclComm_t comm_ = nullptr;
  std::thread aborting_;
};

}  // namespace spillway::parallel
#endif

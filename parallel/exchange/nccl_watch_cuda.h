// Supervises the exchanges that a rank's NCCL communicators have put on its queues, so that no thread of the executor has to wait for one.
// It tells the other ranks which exchanges are done. If a rank that is needed is gone, or if NCCL reports a failure, it gives up all
// exchanges, so that no queue waits forever. The supervision has its own thread; the executor's threads call queue() and settle().
#pragma once
#include "parallel/exchange/nccl_communicator_cuda.h"

#ifdef SPILLWAY_HAS_NCCL
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace spillway::parallel {

class NcclWatch {
 public:
  /// Describes one communicator and its exchanges, which follow each other on one queue.
  struct Line {
    NcclCommunicator* nccl = nullptr;
    double timeout_s = 60;  // limit in seconds for the rest of an exchange, counted from the moment at which the event of `need` is set
    /// Called once this GPU has reached an exchange. The returned event is set when a rank whose part is needed says that it has done
    /// that part; it fails if that rank cannot go on.
    std::function<Event()> need;
    std::function<void()> done;  // tells another rank that this rank has done its part
  };
  /// Starts the supervision. `failed` is called at most once, before any waiting queue is released. From then on, the results of
  /// exchanges are invalid and must not be used.
  NcclWatch(Device gpu, std::function<void(const std::string& why)> failed);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// Adds a line (a communicator and its exchanges) and returns its index. All lines must be added before the first exchange.
  size_t add(Line line);
  /// Calls `work`, which puts an exchange of the line (a communicator and its exchanges) on the queue. If `work` throws, or an exchange
  /// failed before, gives up all exchanges and rethrows the error.
  void queue(size_t line, const GpuQueue& queue, const std::string& what, const std::function<void()>& work);
  /// Called when the queues are empty. Waits until the other ranks have been told about all exchanges. Rethrows an earlier failure.
  void settle();
  /// Ends the supervision. Returns true if all exchanges were done and none had failed.
  bool stop() noexcept;

 private:
  struct Exchange {
    explicit Exchange(Device gpu) : begin(gpu), end(gpu) {}
    const GpuEvent begin, end;
    std::string what;
    bool begun = false;
    Event needed;
    std::chrono::steady_clock::time_point others_done{};
  };
  struct Watched {
    Line line;
    std::deque<std::unique_ptr<Exchange>> queued;
  };

  void run();
  bool look();
  bool look_at(Watched& watched);
  void require_peers(const Watched& watched, Exchange& exchange) const;
  std::unique_ptr<Exchange> take_exchange();
  Exchange* first_of(const Watched& watched);
  bool all_done() const;
  void fail(const std::exception_ptr& error) noexcept;

  const Device gpu_;
  const std::function<void(const std::string&)> failed_;
  std::deque<Watched> lines_;
  std::mutex mutex_;  // guards all members declared below, and the queued exchanges
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Exchange>> spare_;
  std::exception_ptr error_;
  bool ends_ = false;
  int settling_ = 0;
  std::thread thread_;
};

}  // namespace spillway::parallel
#endif

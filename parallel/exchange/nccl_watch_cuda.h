// Supervises the exchanges that a rank's NCCL communicators have on its queues, so that no lane has to wait for one. It tells the other
// ranks which exchanges are done. If a needed rank is gone or NCCL reports a failure, it gives up all exchanges, so that no queue waits
// forever. It has one thread of its own; the lanes' threads call queue() and settle().
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
  /// The exchanges of one communicator, which follow each other on one queue.
  struct Line {
    NcclCommunicator* nccl = nullptr;
    double timeout_s = 60;  // for the rest of an exchange, once the ranks asked by `need` have done their part
    /// Asks a needed rank, once this GPU has reached an exchange, for its word that it is done; fails if that rank cannot go on.
    std::function<Event()> need;
    std::function<void()> done;  // tells the others that this rank is done
  };
  /// `failed` is called once, before anything that waits is released: results produced after that are invalid and must not be used.
  NcclWatch(Device gpu, std::function<void(const std::string& why)> failed);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// Adds a line and returns its number. Called before any exchange.
  size_t add(Line line);
  /// Runs `work`, which puts an exchange of this line on the queue. Rethrows its error, or an earlier failure; in both cases all exchanges
  /// have been given up.
  void queue(size_t line, const GpuQueue& queue, const std::string& what, const std::function<void()>& work);
  /// Called when the queues are empty: waits until the other ranks have been told, and throws an earlier failure.
  void settle();
  /// Stops supervising. Returns true if all exchanges were done.
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
  std::mutex mutex_;  // guards all members below, and the queued exchanges
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Exchange>> spare_;
  std::exception_ptr error_;
  bool ends_ = false;
  int settling_ = 0;
  std::thread thread_;
};

}  // namespace spillway::parallel
#endif

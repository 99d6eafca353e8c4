// Looks after the exchanges that a rank's NCCL communicators have on its queues, so that no lane waits for one: tells the other ranks which
// are done, and when a rank that is needed is gone or NCCL says that it failed, gives all of them up, so that no queue waits for ever. One
// thread of its own; those of the lanes call queue() and settle().
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
  /// One communicator's exchanges, which follow each other on one queue.
  struct Line {
    NcclCommunicator* nccl = nullptr;
    double timeout_s = 60;        // for the rest of an exchange, once those whose word was waited for have done their part
    std::function<Event()> need;  // the word of a rank that is needed, once this GPU has come to an exchange; fails when it cannot go on
    std::function<void()> done;   // this rank's word
  };
  /// `failed` is called once, before anything that waits is let go: what comes of it must not be taken for good by anybody.
  NcclWatch(Device gpu, std::function<void(const std::string& why)> failed);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  /// The number of this line. Before any exchange.
  size_t add(Line line);
  /// `work` puts an exchange of this line on the queue. Throws what it throws, or what failed before; then all have been given up.
  void queue(size_t line, const GpuQueue& queue, const std::string& what, const std::function<void()>& work);
  /// When the queues are empty: until the other ranks know. Throws what failed.
  void settle();
  /// Nothing is looked after any more. Whether all that was is done.
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
  std::mutex mutex_;  // of all below, and of what is queued
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Exchange>> spare_;
  std::exception_ptr error_;
  bool ends_ = false;
  int settling_ = 0;
  std::thread thread_;
};

}  // namespace spillway::parallel
#endif

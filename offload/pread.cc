// The pread engine: a few threads that call pread and pwrite. It works wherever files do; io_uring is there to do the same with less CPU.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "offload/piece.h"

namespace spillway::offload {
namespace {

constexpr int kMaxThreads = 4;  // pieces a drive is given at once; more gain little on one device

i64 call(const Transfer& t, i64 bytes) {
  const auto count = static_cast<size_t>(bytes);
  const auto n = t.write ? ::pwrite(t.descriptor, t.buffer, count, t.offset) : ::pread(t.descriptor, t.buffer, count, t.offset);
  return n < 0 ? -static_cast<i64>(errno) : static_cast<i64>(n);
}

class PreadEngine final : public PieceEngine {
 public:
  PreadEngine(int queue_depth, SystemCalls& system) : PieceEngine(system) {
    for (int i = 0; i < std::min(queue_depth, kMaxThreads); ++i) threads_.emplace_back([this] { work(); });
  }

  ~PreadEngine() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string_view name() const override { return "pread"; }

 private:
  void start(Piece piece) override {
    {
      std::lock_guard lock(mutex_);
      queue_.push(std::move(piece));
    }
    changed_.notify_one();
  }

  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || !queue_.empty(); });
      std::optional<Piece> piece = queue_.pop();
      if (!piece) return;
      lock.unlock();
      for (bool over = false; !over;) {
        const Transfer rest = piece->rest();
        over = piece->absorb(system_.completed(rest, call(rest, system_.bytes_to_request(rest))));
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  PieceQueue queue_;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoEngine> make_pread_engine(int queue_depth, SystemCalls& system) {
  return std::make_unique<PreadEngine>(queue_depth, system);
}

}  // namespace spillway::offload

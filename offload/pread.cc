// Implements the pread engine: up to 16 threads per drive call pread and pwrite. This engine
// works on every filesystem; the io_uring engine does the same with less CPU time.
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread.h"
#include "offload/piece.h"

namespace spillway::offload {
namespace {

// A drive has this many threads, and so works on as many pieces at once. On busy cores 4
// threads reach 1.04 GB/s in bench/disk.cc, 8 reach 1.17 and 16 reach 1.49.
constexpr int kThreadsPerDrive = 16;

i64 call(const Transfer& t, i64 bytes) {
  const auto count = static_cast<size_t>(bytes);
  const auto n = t.write ? ::pwrite(t.descriptor, t.buffer, count, t.offset) : ::pread(t.descriptor, t.buffer, count, t.offset);
  return n < 0 ? -static_cast<i64>(errno) : static_cast<i64>(n);
}

class PreadEngine final : public PieceEngine {
 public:
  PreadEngine(int queue_depth, SystemCalls& system) : PieceEngine(system), queue_depth_(static_cast<size_t>(queue_depth)) {}

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
    struct stat info {};
    ::fstat(piece.rest().descriptor, &info);
    {
      std::lock_guard lock(mutex_);
      if (drives_.insert(info.st_dev).second) add_threads();
      queue_.push(std::move(piece));
    }
    changed_.notify_one();
  }

  void add_threads() {
    for (int i = 0; i < kThreadsPerDrive && threads_.size() < queue_depth_; ++i) {
      try {
        threads_.push_back(start_thread([this] { work(); }));
      } catch (const Error&) {  // the threads that were started suffice, as long as there is at least one
        if (threads_.empty()) throw;
        return;
      }
    }
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

  const size_t queue_depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  PieceQueue queue_;
  bool stop_ = false;
  std::set<dev_t> drives_;  // the drives of all files that requests have named so far
  std::vector<std::thread> threads_;
};

}  // namespace

std::unique_ptr<IoEngine> make_pread_engine(int queue_depth, SystemCalls& system) {
  return std::make_unique<PreadEngine>(queue_depth, system);
}

}  // namespace spillway::offload

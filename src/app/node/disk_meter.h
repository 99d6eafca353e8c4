// How busy the disk was: time with at least one transfer in the kernel's hands, and bytes, of reads, of writes and of either. Every run
// measures it; the cost is a lock and a look at the clock for each MiB. Called from the I/O engine's threads; thread-safe.
#pragma once
#include <chrono>
#include <mutex>

#include "offload/system_calls.h"

namespace spillway::app {

struct DiskUse {
  double read_s = 0, write_s = 0, either_s = 0;
  i64 read_bytes = 0, written_bytes = 0;

  DiskUse& operator+=(const DiskUse& other);
  DiskUse operator-(const DiskUse& earlier) const;
};

class DiskMeter final : public offload::SystemCalls {
 public:
  /// Between the engine and `next`, which must outlive it.
  explicit DiskMeter(offload::SystemCalls& next) : next_(next) {}

  int refuse_io_uring() override { return next_.refuse_io_uring(); }
  i64 bytes_to_request(const offload::Transfer& transfer) override;
  i64 completed(const offload::Transfer& transfer, i64 result) override;
  i64 flushed(int descriptor, i64 result) override { return next_.flushed(descriptor, result); }

  /// Since it was made.
  DiskUse use();

 private:
  using Clock = std::chrono::steady_clock;
  /// Adds the time since the last change to what was under way.
  void pass();

  offload::SystemCalls& next_;
  std::mutex mutex_;
  DiskUse use_;
  i64 reads_ = 0, writes_ = 0;  // under way
  Clock::time_point changed_ = Clock::now();
};

}  // namespace spillway::app

// DiskMeter measures how busy the disk is: bytes read and written, and the time during which at least one read, one write, or either was
// under way in the kernel. Every run measures its disk, at the cost of a lock and a clock reading per MiB. The I/O engine's threads call
// the meter. Thread-safe.
#pragma once
#include <chrono>
#include <mutex>

#include "offload/system_calls.h"

namespace spillway::trainer {

struct DiskUse {
  double read_s = 0, write_s = 0, either_s = 0;
  i64 read_bytes = 0, written_bytes = 0;

  DiskUse& operator+=(const DiskUse& other);
  DiskUse operator-(const DiskUse& earlier) const;
};

class DiskMeter final : public offload::SystemCalls {
 public:
  /// Creates a meter between the I/O engine and `next`, to which it passes all calls. `next` must outlive the meter.
  explicit DiskMeter(offload::SystemCalls& next) : next_(next) {}

  int refuse_io_uring() override { return next_.refuse_io_uring(); }
  i64 bytes_to_request(const offload::Transfer& transfer) override;
  i64 completed(const offload::Transfer& transfer, i64 result) override;
  i64 flushed(int descriptor, i64 result) override { return next_.flushed(descriptor, result); }

  /// Returns the disk use since this meter was constructed.
  DiskUse use();

 private:
  using Clock = std::chrono::steady_clock;
  /// Adds the time since the last call of pass() to the sum of each kind of transfer that is under way.
  void pass();

  offload::SystemCalls& next_;
  std::mutex mutex_;
  DiskUse use_;
  i64 reads_ = 0, writes_ = 0;  // number of reads and of writes that are under way
  Clock::time_point changed_ = Clock::now();
};

}  // namespace spillway::trainer

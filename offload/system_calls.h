// SystemCalls stands for the operating system as the I/O engines see it, so that tests can simulate disk faults. An engine asks this
// class how much of a transfer to request and what to make of the kernel's answer. The base class is the real system and changes
// nothing. The engines' threads call it concurrently: implementations must be thread-safe and outlive the engine.
#pragma once
#include "base/types.h"

namespace spillway::offload {

/// Describes one read or write system call: `bytes` at `offset` of an open file, to or from `buffer`.
struct Transfer {
  int descriptor = -1;
  bool write = false;
  i64 offset = 0, bytes = 0;
  std::byte* buffer = nullptr;
};

class SystemCalls {
 public:
  virtual ~SystemCalls() = default;
  /// Returns an errno to simulate a system that refuses io_uring, or 0 to ask the real kernel.
  virtual int refuse_io_uring() { return 0; }
  /// Returns how many bytes of `transfer` to request from the kernel, in [1, transfer.bytes]; fewer than transfer.bytes make a short
  /// transfer.
  virtual i64 bytes_to_request(const Transfer& transfer) { return transfer.bytes; }
  /// Returns the result that the engine is to see for this transfer. `result` is the kernel's answer: a byte count or a negative errno.
  virtual i64 completed(const Transfer&, i64 result) { return result; }
  /// Returns the result that the engine is to see for fdatasync. `result` is the kernel's answer: 0 or a negative errno.
  virtual i64 flushed(int /*descriptor*/, i64 result) { return result; }

  static SystemCalls& real();
};

}  // namespace spillway::offload

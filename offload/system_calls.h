// The operating system as the I/O engines see it, so that tests own the disk: an engine asks here how much of a transfer to request and
// what to make of the kernel's answer. The base class is the real system and changes nothing. Called from the engines' threads at once:
// implementations must be thread-safe and outlive the engine.
#pragma once
#include "base/types.h"

namespace spillway::offload {

/// One call to the kernel: `bytes` at `offset` of an open file to or from `buffer`.
struct Transfer {
  int descriptor = -1;
  bool write = false;
  i64 offset = 0, bytes = 0;
  std::byte* buffer = nullptr;
};

class SystemCalls {
 public:
  virtual ~SystemCalls() = default;
  /// The errno with which io_uring is refused here; 0 leaves the answer to the kernel.
  virtual int refuse_io_uring() { return 0; }
  /// How many bytes of `transfer` to ask the kernel for, in [1, transfer.bytes]: fewer make a short count.
  virtual i64 bytes_to_request(const Transfer& transfer) { return transfer.bytes; }
  /// What the engine is told: `result` is the kernel's answer, a byte count or a negative errno.
  virtual i64 completed(const Transfer&, i64 result) { return result; }
  /// The same for fdatasync: 0 or a negative errno.
  virtual i64 flushed(int /*descriptor*/, i64 result) { return result; }

  static SystemCalls& real();
};

}  // namespace spillway::offload

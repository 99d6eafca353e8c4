// An I/O engine reads and writes files asynchronously. Two engines implement the interface: io_uring (offload/io_uring.cc) and pread
// (offload/pread.cc: threads for each drive). The result of every completion is checked, and short reads and writes are resumed. An error
// becomes Error(io) "[io] file, offset, errno, what to do" in the Event, which is set when the kernel no longer uses any part of the
// buffer. Thread-safe: any thread may submit. The operating system is a parameter (offload/system_calls.h), so tests can inject EIO,
// ENOSPC and short counts. An engine's destructor waits for requests in progress.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/types.h"
#include "device/event.h"

namespace spillway::offload {

class ScratchFile;
class SystemCalls;

/// Decides which requests go first while the queue is full. Use urgent for data that a computation waits for. An unbroken stream of urgent
/// requests starves normal ones.
enum class Priority : u8 { normal, urgent };

struct IoRequest {
  const ScratchFile* file = nullptr;  // the file; it must outlive the event
  bool write = false;
  // Gives the offset in the file. If the file uses O_DIRECT, `offset`, `bytes` and the buffer's address must be multiples of
  // kDirectAlignment.
  i64 offset = 0;
  i64 bytes = 0;
  std::byte* buffer = nullptr;  // the source if `write`, else the destination; must stay valid until the event
  Priority priority = Priority::normal;
};

class IoEngine {
 public:
  virtual ~IoEngine() = default;
  virtual std::string_view name() const = 0;
  /// Queues one request and returns at once. The request is cut into pieces of at most 1 MiB, and only a bounded number of pieces is
  /// submitted to the kernel at a time; the rest waits in the engine, by priority and then in order of arrival. The event is set when the
  /// whole request is done. Throws Error(bug) on a range outside the file, or on one that is not aligned for direct I/O.
  virtual Event submit(const IoRequest& request) = 0;
  /// Makes all completed writes to `file` survive a power loss (fdatasync). Throws Error(io); after that the bytes may be lost, and a
  /// second call would not report the loss.
  virtual void flush(const ScratchFile& file) = 0;
};

enum class IoEngineKind { automatic, io_uring, pread };

struct ChosenEngine {
  std::unique_ptr<IoEngine> engine;
  std::string why;  // one line: "io_uring, queue depth 64" or "pread: the system refused io_uring (EPERM: …); …" with the cost
};

constexpr int kQueueDepth = 64;

/// Makes an engine. `automatic` tries io_uring and falls back to pread with the reason in `why`. Kind io_uring throws Error(io) if the
/// system refuses it.
ChosenEngine make_io_engine(IoEngineKind kind, int queue_depth = kQueueDepth);
/// Makes an engine that calls the operating system through `system`, which must outlive the engine.
ChosenEngine make_io_engine(IoEngineKind kind, int queue_depth, SystemCalls& system);

}  // namespace spillway::offload

// Asynchronous file I/O behind one interface: io_uring (offload/io_uring.cc) and pread (offload/pread.cc: threads for each drive). Every
// completion's result is looked at; short reads and writes are resumed; an error becomes Error(io) "[io] file, offset, errno, what to do"
// in the Event, set when the kernel has let go of the whole buffer. Thread-safe: any thread may submit. The OS is a parameter
// (offload/system_calls.h): so tests inject EIO, ENOSPC and short counts. An engine's destructor waits for what is under way.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include "base/types.h"
#include "device/event.h"

namespace spillway::offload {

class ScratchFile;
class SystemCalls;

/// Who goes first while the queue is full: urgent is what compute waits for. Urgent requests that never pause starve normal ones.
enum class Priority : u8 { normal, urgent };

struct IoRequest {
  const ScratchFile* file = nullptr;  // must outlive the event
  bool write = false;
  i64 offset = 0;  // in the file; a multiple of the file's alignment, like `bytes` and the buffer's address, under O_DIRECT
  i64 bytes = 0;
  std::byte* buffer = nullptr;  // read from when `write`; must stay valid until the event
  Priority priority = Priority::normal;
};

class IoEngine {
 public:
  virtual ~IoEngine() = default;
  virtual std::string_view name() const = 0;
  /// Takes one request in and returns at once: it is cut into pieces of at most 1 MiB, of which a bounded number is with the kernel; the
  /// rest waits inside, by priority and then in order. The event is set when all of it is done. Throws Error(bug) on a range outside the
  /// file, or one that direct I/O cannot align.
  virtual Event submit(const IoRequest& request) = 0;
  /// Puts what was written to `file` and has completed beyond the reach of a power loss (fdatasync). Throws Error(io); then the bytes may
  /// be lost, and a second try would not say so.
  virtual void flush(const ScratchFile& file) = 0;
};

enum class IoEngineKind { automatic, io_uring, pread };

struct ChosenEngine {
  std::unique_ptr<IoEngine> engine;
  std::string why;  // one line: "io_uring, queue depth 64" or "pread: io_uring refused (EPERM: seccomp or …); …" with the loss
};

constexpr int kQueueDepth = 64;

/// `automatic` falls back to pread with the reason in `why`; io_uring demanded but refused throws Error(io).
ChosenEngine make_io_engine(IoEngineKind kind, int queue_depth = kQueueDepth);
/// The same on another operating system; `system` must outlive the engine.
ChosenEngine make_io_engine(IoEngineKind kind, int queue_depth, SystemCalls& system);

}  // namespace spillway::offload

// A StagingRing is a fixed number of equal buffers in host memory between nvme and compute, carved from one allocation. Host memory
// therefore does not grow with the amount of data that flows through the buffers. The optimizer's step streams state tiles through them.
// Buffers begin at multiples of 4096 bytes, as direct I/O requires. Thread-safe. The ring's memory lives until the last buffer on loan
// (Lease) has been returned.
#pragma once
#include <memory>
#include <optional>
#include <span>

#include "device/event.h"
#include "device/memory_pool.h"

namespace spillway::offload {

class StagingRing {
 public:
  /// Holds one buffer on loan; the destructor returns the buffer to the ring. A Lease is movable and is used by one thread at a time.
  class Lease {
   public:
    Lease(Lease&&) noexcept;
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    /// Returns the buffer, buffer_bytes() long; it still holds what its last user left there.
    std::span<std::byte> bytes() const;
    /// Declares that the buffer is in use until `event` is set. The destructor waits for the event before it returns the buffer, and
    /// ignores an error of the event; call wait() on the event to get the error.
    void busy_until(Event event) { busy_ = std::move(event); }

   private:
    friend class StagingRing;
    struct Shared;
    Lease(std::shared_ptr<Shared> shared, std::byte* buffer);
    std::shared_ptr<Shared> shared_;
    std::byte* buffer_;
    std::optional<Event> busy_;
  };

  /// Allocates `buffers` buffers from `memory`, each of buffer_bytes rounded up to a multiple of 4096. Throws what the pool throws;
  /// Error(bug) if `buffers` or
  /// `buffer_bytes` is below 1.
  StagingRing(MemoryPool& memory, int buffers, i64 buffer_bytes, const char* what);

  /// Blocks until a buffer is free. A thread that holds all buffers and asks for another waits forever.
  Lease acquire();
  /// Waits like acquire(), but returns nothing if no buffer became free within `seconds`.
  std::optional<Lease> acquire_for(double seconds);

  int buffers() const;
  i64 buffer_bytes() const;

 private:
  Lease take();
  std::shared_ptr<Lease::Shared> shared_;
};

}  // namespace spillway::offload

// A bounded set of equal staging buffers between nvme and compute, carved from one allocation: however much flows through, the host memory
// held stays the same. The optimizer's Step streams state tiles through it. Buffers begin at multiples of 4096 bytes, as direct I/O wants.
// Thread-safe. The ring's memory lives until the last lease is back.
#pragma once
#include <memory>
#include <optional>
#include <span>

#include "device/event.h"
#include "device/memory_pool.h"

namespace spillway::offload {

class StagingRing {
 public:
  /// One buffer on loan; gives it back on destruction. Movable. Used by one thread at a time.
  class Lease {
   public:
    Lease(Lease&&) noexcept;
    Lease& operator=(Lease&&) = delete;
    ~Lease();
    /// buffer_bytes() of them; what they hold is left over from the last user.
    std::span<std::byte> bytes() const;
    /// The bytes are in use until `event`: giving the buffer back waits for it. Its error is not rethrown there: wait() for it yourself.
    void busy_until(Event event) { busy_ = std::move(event); }

   private:
    friend class StagingRing;
    struct Shared;
    Lease(std::shared_ptr<Shared> shared, std::byte* buffer);
    std::shared_ptr<Shared> shared_;
    std::byte* buffer_;
    std::optional<Event> busy_;
  };

  /// Takes buffers * (buffer_bytes rounded up to 4096) from `memory` at once. Throws what the pool throws; Error(bug) without buffers.
  StagingRing(MemoryPool& memory, int buffers, i64 buffer_bytes, const char* what);

  /// Blocks until a buffer is free. A thread that holds all the leases and asks for another waits forever.
  Lease acquire();
  /// The same, but none when no buffer was free for so long.
  std::optional<Lease> acquire_for(double seconds);

  int buffers() const;
  i64 buffer_bytes() const;

 private:
  Lease take();
  std::shared_ptr<Lease::Shared> shared_;
};

}  // namespace spillway::offload

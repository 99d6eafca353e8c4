// Defines Storage, the bytes behind tensors. A storage keeps its identity while its bytes come and go. The code that moves bytes
// (parallel/) gives memory to a `vacant` storage with fill() and takes it away with drop(); an `owning` storage is dropped and
// refilled. When the storage is filled again, every view of it is valid again, including those saved on a tape. fill() and
// drop() are not thread-safe; the schedule that a rank executes (its Program) orders them against readers. Invariant: data() is
// valid exactly while resident(). Code that changes values which a tape may have saved calls written(); the tape then refuses to
// differentiate with these values. Moving unchanged values away and back, as offload and recomputation do, is not a change.
#pragma once
#include <atomic>
#include <memory>

#include "device/allocator.h"
#include "device/device.h"

namespace spillway {

class Storage {
 public:
  /// Creates a storage that owns its memory until it is destroyed or dropped. After drop(), refill() gives it new memory.
  static std::shared_ptr<Storage> owning(Device device, Allocation memory);
  /// Creates a storage of size `bytes` that has memory only between fill() and drop().
  static std::shared_ptr<Storage> vacant(Device device, i64 bytes);

  /// Makes the storage resident at `data`, which must stay valid for bytes() until drop(). On the meta device `data` is ignored. Throws
  /// Error(bug) if the storage is already resident or owning.
  void fill(std::byte* data);
  /// Makes the storage resident as fill() does, but with memory that belongs to `lender`, which
  /// is kept alive until drop(). A change reported by written() on either storage counts for
  /// both. Borrowing itself also counts as a change, since the values differ from earlier ones.
  void borrow(std::shared_ptr<Storage> lender, std::byte* data);
  /// Gives new memory of size bytes() to an owning storage that was dropped.
  void refill(Allocation memory);
  void drop();

  Device device() const { return device_; }
  i64 bytes() const { return bytes_; }
  bool resident() const { return resident_; }
  bool owning() const { return owning_; }
  /// Returns the address of the bytes, null on the meta device. Throws Error(bug) if the storage has no memory at present.
  std::byte* data() const;

  /// Records that the values were changed in place, so that results computed from the old values can no longer be differentiated. May be
  /// called from any thread.
  void written();
  /// Returns a number that grows with every written() and borrow(), like PyTorch's version counter.
  u64 version() const;

 private:
  Storage(Device device, i64 bytes) : device_(device), bytes_(bytes) {}
  Device device_;
  i64 bytes_;
  Allocation memory_;
  std::byte* data_ = nullptr;
  bool resident_ = false, owning_ = false;
  std::shared_ptr<Storage> lender_;  // the storage that owns the memory, if this storage borrows it
  std::atomic<u64> version_ = 0;
};

}  // namespace spillway

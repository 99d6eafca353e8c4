// The bytes behind tensors. A storage's identity outlives its residency: one made by `vacant` is filled and dropped in place by whoever
// moves bytes (parallel/), an owning one is dropped and refilled, and every view of it, those saved on a tape too, is right again
// afterwards. Not thread-safe by itself: fill and drop are ordered against readers by the Program. Invariant: data() is valid exactly while
// resident(). Whoever writes values that a tape may have saved says so (written()), and the tape refuses to differentiate with them; moving
// the same values away and back, as offload and recomputation do, is not a change.
#pragma once
#include <atomic>
#include <memory>

#include "device/allocator.h"
#include "device/device.h"

namespace spillway {

class Storage {
 public:
  /// Owns its memory until destroyed or dropped; refill() gives it new memory.
  static std::shared_ptr<Storage> owning(Device device, Allocation memory);
  /// Holds `bytes` only while filled.
  static std::shared_ptr<Storage> vacant(Device device, i64 bytes);

  /// `data` must stay valid for bytes() until drop(); ignored on the meta device. Throws Error(bug) if already resident.
  void fill(std::byte* data);
  /// As fill(), with memory that belongs to `lender`, which is kept until drop(): what is written through either counts for both. The
  /// values are other ones than before, so this counts as a change.
  void borrow(std::shared_ptr<Storage> lender, std::byte* data);
  /// Of an owning storage that was dropped; `memory` is of bytes().
  void refill(Allocation memory);
  void drop();

  Device device() const { return device_; }
  i64 bytes() const { return bytes_; }
  bool resident() const { return resident_; }
  bool owning() const { return owning_; }
  /// Null on the meta device; throws Error(bug) when not resident.
  std::byte* data() const;

  /// The values were changed in place: what was computed from the old ones can no longer be differentiated. From any thread.
  void written();
  /// A number that grows with every written() and borrow(), as PyTorch's version counter does.
  u64 version() const;

 private:
  Storage(Device device, i64 bytes) : device_(device), bytes_(bytes) {}
  Device device_;
  i64 bytes_;
  Allocation memory_;
  std::byte* data_ = nullptr;
  bool resident_ = false, owning_ = false;
  std::shared_ptr<Storage> lender_;  // of borrowed memory
  std::atomic<u64> version_ = 0;
};

}  // namespace spillway

// A SpillDoor offloads what a block keeps for its backward. It holds the tensors that a tape (autograd's record of the forward) has saved.
// Between spill() and restore() their storages have no memory, while all views of them stay valid. A storage is offloaded only if nothing
// else references it; a block's output, for example, is also the next block's input. This rule does not look at the device, so a block
// offloads as many bytes on the meta device as in a real run. Used by one thread.
#pragma once
#include <memory>
#include <vector>

#include "autograd/tape.h"

namespace spillway::parallel {

class SpillDoor final : public autograd::SavedTensorDoor {
 public:
  u64 pack(Tensor saved) override;
  Tensor unpack(u64 packed) override;

  /// Returns the bytes that spill() would move, with each storage rounded up to 64 bytes.
  i64 spillable_bytes() const;
  /// Copies the storages to `to`, one after the other, and frees their memory. On the meta device nothing is copied.
  void spill(std::byte* to);
  /// Allocates memory for the offloaded storages from the current stream, and copies their bytes from `from`.
  void restore(const std::byte* from);

 private:
  std::vector<std::shared_ptr<Storage>> held_alone() const;
  std::vector<Tensor> saved_;
  std::vector<std::shared_ptr<Storage>> spilled_;
};

}  // namespace spillway::parallel

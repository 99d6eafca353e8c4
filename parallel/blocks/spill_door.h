// Offloads what a block keeps for its backward. It holds the saved tensors of a tape; between spill() and restore() their storages have no
// memory, while all views of them stay valid. Only storages that nothing else references are offloaded (a block's output is the next
// block's input), so a block offloads the same bytes on the meta device as in a real run. For one thread.
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
  /// Copies the storages to `to`, one after another, and frees their memory. On the meta device nothing is copied.
  void spill(std::byte* to);
  /// Allocates memory of the current stream for the offloaded storages and fills it from `from`.
  void restore(const std::byte* from);

 private:
  std::vector<std::shared_ptr<Storage>> held_alone() const;
  std::vector<Tensor> saved_;
  std::vector<std::shared_ptr<Storage>> spilled_;
};

}  // namespace spillway::parallel

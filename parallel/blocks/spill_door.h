// The door through which what a block keeps for its backward leaves the device: holds the saved tensors of a tape, and between spill() and
// restore() their storages are empty, while every view of them stays right. Only storages that nobody else holds leave (a block's output is
// the next one's input), so the same block spills the same bytes on the meta device and for real. One thread.
#pragma once
#include <memory>
#include <vector>

#include "autograd/tape.h"

namespace spillway::parallel {

class SpillDoor final : public autograd::SavedTensorDoor {
 public:
  u64 pack(Tensor saved) override;
  Tensor unpack(u64 packed) override;

  /// Bytes that spill() would move: each storage rounded up to 64 bytes.
  i64 spillable_bytes() const;
  /// Copies the storages to `to` one after the other and gives their memory back. On the meta device nothing is copied.
  void spill(std::byte* to);
  /// Takes memory of the stream in force for what was spilled and fills it from `from`.
  void restore(const std::byte* from);

 private:
  std::vector<std::shared_ptr<Storage>> held_alone() const;
  std::vector<Tensor> saved_;
  std::vector<std::shared_ptr<Storage>> spilled_;
};

}  // namespace spillway::parallel

// What a rank brings from a tier to its device and back: a Program's Fetches and Evicts. Thread-safe as DeviceCopies.
#pragma once
#include "parallel/run/workplace.h"

namespace spillway::parallel {

class Moves {
 public:
  explicit Moves(Workplace& work) : work_(work) {}

  /// Return the microseconds that they waited for transfers.
  double fetch(const Instruction& i);
  double evict(const Instruction& i);

 private:
  TileRange activation_tile(const Instruction& i) const;

  Workplace& work_;
};

}  // namespace spillway::parallel

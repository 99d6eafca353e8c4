// Defines KeptOps, with which backward() leaves ops on the tape for a later backward(), as PyTorch does: for another loss over the same
// weights, and for the same loss again (retain_graph).
#pragma once
#include <vector>

#include "base/types.h"

namespace spillway::autograd {

/// While a KeptOps object lives, Tape::backward() on the thread that created it runs only the ops from which its variable was computed.
/// Afterwards these ops are released, unless `all` is set. Of the other ops, those from which a live variable was computed stay on the
/// tape for later calls; the rest are released. Such a call throws Error(usage) if it needs an op that an earlier one released.
class KeptOps {
 public:
  /// `alive` has the slots of the variables from which backward() may be called later.
  KeptOps(std::vector<i32> alive, bool all);
  ~KeptOps();
  KeptOps(const KeptOps&) = delete;
  KeptOps& operator=(const KeptOps&) = delete;

  /// Returns the object of this thread; null if there is none.
  static KeptOps* current();
  const std::vector<i32>& alive() const { return alive_; }
  bool all() const { return all_; }
  /// Returns whether the last backward() left ops on its tape.
  bool left() const { return left_; }
  void set_left(bool left) { left_ = left; }

 private:
  const std::vector<i32> alive_;
  const bool all_;
  bool left_ = false;
  KeptOps* const outer_;
};

}  // namespace spillway::autograd
